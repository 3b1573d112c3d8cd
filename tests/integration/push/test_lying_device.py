"""What a device says reaches a terminal as text and nothing else, whichever command asked, whatever went wrong."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from edge.cli.edge_deploy import edge_deploy
from edge.cli.run_command import exit_code_of

pytestmark = pytest.mark.integration

LYING = Path(__file__).parents[2] / "support" / "lying_ssh.py"
COMMANDS = {
    "status": ["status", "gate-01"],
    "logs": ["logs", "gate-01"],
    "confirm": ["confirm", "gate-01"],
    "targets": ["targets", "--check"],
    "push": ["push", "BUNDLE", "gate-01"],
    "plan": ["push", "BUNDLE", "gate-01", "--plan"],
    "push of two": ["push", "BUNDLE", "all"],
    "rollback": ["rollback", "gate-01"],
    "provision": ["provision", "gate-01", "--plan", "--signer", "KEY", "--key", "KEY"],
    "undo": ["provision", "gate-01", "--undo"],
}


@pytest.fixture
def run(tmp_path, device, monkeypatch, capfd):
    """Run a command as a person does, with the lying ssh in the path; return what a terminal would be sent."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    inventory = tmp_path / "targets.toml"
    inventory.write_text('[[target]]\nname = "gate-01"\nhost = "one"\n[[target]]\nname = "gate-02"\nhost = "two"\n')
    words = {"BUNDLE": str(device.bundle().path), "KEY": str(device.key.with_suffix(".pub"))}

    def run(how, command, *options):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        line = shlex.join([sys.executable, str(LYING), how])
        (folder / "ssh").write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (folder / "ssh").chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{folder}:/usr/bin:/bin")
            arguments = [words.get(word, word) for word in (*command, *options, "--targets", str(inventory))]
            patch.setattr(sys, "argv", ["edge-deploy", *arguments])
            capfd.readouterr()
            code = exit_code_of(edge_deploy, is_service=False)
        return code, *capfd.readouterr()

    return run


def _moves(text):
    """Return what in a text is more than lines of characters that have a shape."""
    return {character for character in text if not character.isprintable() and character != "\n"}


@pytest.mark.parametrize("how", ["texts", "errors", "stderr", "banner"])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_hands_on_what_moves_a_cursor(run, name, how):
    _, out, err = run(how, COMMANDS[name])
    assert _moves(out + err) == set(), (out, err)
    assert "internal" not in out + err  # an answer that cannot be read is no fault of ours


@pytest.mark.parametrize("how", ["texts", "errors", "stderr", "banner"])
@pytest.mark.parametrize("name", ["status", "logs", "targets", "push", "provision"])
def test_nor_do_its_documents_for_programs(run, name, how):
    _, out, err = run(how, COMMANDS[name], "--json")
    assert _moves(out + err) == set()
    for document in out.splitlines() if name in ("push", "provision") else [out] if out else []:
        json.loads(document, object_pairs_hook=_check_pairs)


def _check_pairs(pairs):
    for key, value in pairs:
        assert not _moves(key), key
        for one in value if isinstance(value, list) else [value]:
            assert not isinstance(one, str) or not _moves(one), one
    return dict(pairs)
