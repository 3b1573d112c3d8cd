"""What a device says reaches a terminal as text and nothing else, whichever command asked, whatever went wrong."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.command_line import command, harm_of, on_terminal

pytestmark = pytest.mark.slow_but(reason="further pushes over real agents: the first row of each test is quick")

LYING = Path(__file__).parents[2] / "support" / "lying_ssh.py"
COMMANDS = {
    "status": ["status", "gate-01"],
    "logs": ["logs", "gate-01"],
    "confirm": ["confirm", "gate-01"],
    "push": ["push", "BUNDLE", "gate-01"],
    "plan": ["push", "BUNDLE", "gate-01", "--plan"],
    "push of two": ["push", "BUNDLE", "all"],
    "rollback": ["rollback", "gate-01"],
    "provision": ["provision", "gate-01", "--plan", "--signer", "KEY", "--key", "KEY"],
    "undo": ["provision", "gate-01", "--undo"],
    "table": ["status", "all", "--table"],
    "open": ["open", "gate-01"],
}


@pytest.fixture
def spoken(tmp_path, device, monkeypatch):
    """Return the words of a command, once the ssh in the path lies in this way."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    inventory = tmp_path / "targets.toml"
    inventory.write_text('[[target]]\nname = "gate-01"\nhost = "one"\n[[target]]\nname = "gate-02"\nhost = "two"\n')
    known = {"BUNDLE": str(device.bundle().path), "KEY": str(device.key.with_suffix(".pub"))}

    def spoken(how, words):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        line = shlex.join([sys.executable, str(LYING), how])
        (folder / "ssh").write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (folder / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return [*(known.get(word, word) for word in words), "--targets", str(inventory)]

    return spoken


@pytest.mark.parametrize("how", ["texts", "errors", "stderr", "banner"])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_hands_on_what_moves_a_cursor(spoken, name, how):
    _, told = on_terminal(*spoken(how, COMMANDS[name]))

    assert harm_of(told) == []
    assert "internal" not in told  # an answer that cannot be read is no fault of ours


@pytest.mark.parametrize("how", ["texts", "errors", "stderr", "banner"])
@pytest.mark.parametrize("name", ["status", "logs", "push", "provision"])
def test_nor_do_its_documents_for_programs(spoken, name, how):
    done = command("edge-deploy", *spoken(how, COMMANDS[name]), "--json", expected=None)

    assert harm_of(done.stdout + done.stderr) == []
    for document in done.stdout.splitlines() if name in ("push", "provision") else [done.stdout] if done.stdout else []:
        json.loads(document, object_pairs_hook=_check_pairs)


def _check_pairs(pairs):
    for key, value in pairs:
        assert key.isprintable()
        for one in value if isinstance(value, list) else [value]:
            assert not isinstance(one, str) or one.isprintable(), one
    return dict(pairs)
