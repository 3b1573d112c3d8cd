"""Who looks at a registry: what provision installed, or what the release that serves brought, with its own agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge.bundle.manifest import Role
from tests.integration.registry.test_killed_pulls import goes_back
from tests.support.broken_software import PULLS, lab_agent, lab_pull
from tests.support.real_units import install_software
from tests.support.wheels import own_with, software_files

pytestmark = pytest.mark.integration
TURN_PULL = Path(__file__).parents[2] / "support/turn_pull.py"
LOOKS = 2  # of what was brought, after each of what is installed


class Behind:
    """A device that can only be brought what lies in its registry; `told` is what its looks said."""

    def __init__(self, root, odd, state):
        self.root, self.odd, self.state, self.sequence, self.told = root, odd, state, 0, ""
        (root.layout.etc / "pull.toml").write_text(f'repository = "{odd.host}/farms/gates"\n')
        (root.layout.etc / "registry-ca.pem").write_text(odd.ca.read_text())
        state.mkdir()
        self.bring(None)

    def bring(self, changes):
        """Put a release into the registry, which brings software where there are changes to it."""
        self.sequence += 1
        files = {} if changes is None else software_files(own_with(changes))
        parts = {"model.onnx": (Role.MODEL, b"m%d" % self.sequence), "pipeline.yaml": (Role.PIPELINE, b"p"), **files}
        bundle = self.root.bundle_of(parts, "gates", sequence=self.sequence)
        self.odd.take(bundle)
        return bundle.manifest.release

    def look(self):
        """Look as the unit does; return which release serves then."""
        command = [sys.executable, str(TURN_PULL), str(self.root.root)]
        environment = {**os.environ, "STATE_DIRECTORY": str(self.state)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        self.code, self.told = done.returncode, done.stderr
        return self.root.device.releases.current()

    def serve(self, changes):
        """Have a release serve that brings software, fetched by what is installed."""
        release = self.bring(changes)
        assert self.look() == release, self.told
        install_software(self.root.root)
        return release

    def looks_until(self, release, most):
        for count in range(1, most + 1):
            if self.look() == release:
                return count
        raise AssertionError(f"after {most} looks it is not here: {self.told}")

    def was_by(self):
        """Return which edge-deploy has staged the last release, by the log of what was done."""
        return [line["who"] for line in self.root.device.audit.lines(100) if line["what"] == "stage"][-1]


@pytest.fixture
def behind(root, odd, tmp_path):
    return Behind(root, odd, tmp_path / "state")


def test_the_look_of_what_was_brought_brings_the_next_release_with_an_agent_of_its_own(behind):
    loud = b"def pull(\n", b"__import__('sys').stderr.write('a later pull\\n')\n\n\ndef pull(\n"
    louder = b"def serve(\n", b"__import__('sys').stderr.write('a later agent\\n')\n\n\ndef serve(\n"
    changes = lab_pull()
    for name, (before, after) in {"pull/pull.py": loud, "agent/serve.py": louder}.items():
        path = f"edge/runtime/{name}"
        text = changes.get(path, (Path(__file__).parents[3] / path).read_bytes())
        assert text.count(before) == 1
        changes[path] = text.replace(before, after)
    behind.serve(changes)
    after = behind.bring(None)

    assert behind.look() == after
    assert behind.code == 0
    assert "a later pull" in behind.told
    assert json.loads((behind.state / "pull.json").read_text())["result"] == "committed"
    assert not behind.root.layout.pull_by.exists()
    assert behind.look() == after
    assert "a later" not in behind.told


@pytest.mark.parametrize("how", PULLS)
def test_a_pull_that_is_broken_in_a_way_that_no_trial_sees_keeps_no_release_out(behind, how):
    behind.serve(lab_pull(how))
    after = behind.bring(None)

    behind.looks_until(after, LOOKS + 1)


@pytest.mark.parametrize("how", ["dies", "refuses-all", "calls-all-unchanged", "hangs-with-the-lock"])
def test_the_agent_of_a_look_that_is_broken_keeps_no_release_out(behind, how):
    behind.serve({**lab_pull(), **lab_agent(how)})
    after = behind.bring(None)

    behind.looks_until(after, LOOKS + 1)


@pytest.mark.parametrize("how", [None, "finds-nothing-new", "says-that-it-was-judged"])
def test_who_goes_back_by_hand_is_overruled_by_nobody_s_look(behind, how):
    before = behind.serve(lab_pull(how))
    after = behind.bring(None)
    behind.looks_until(after, LOOKS + 1)
    goes_back(behind.root)
    assert behind.root.device.releases.current() == before

    assert [behind.look() for _ in range(2 * LOOKS + 2)] == [before] * (2 * LOOKS + 2), behind.told


def test_what_was_brought_looks_at_nothing_while_a_release_is_on_trial(behind):
    behind.serve(lab_pull("raises"))
    behind.root.script(trial="hang")
    behind.root.push(behind.root.bundle("held", sequence=99), detach=True)

    codes = []
    for _ in range(2):
        behind.bring(None)
        behind.look()
        codes.append(behind.code)

    assert 1 not in codes, behind.told  # what raises would have ended with that
    assert behind.root.device.state().target is not None
