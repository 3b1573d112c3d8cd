"""What provision starts: what fetches, and, where a release was served before an undo, what serves, as a boot would."""

import subprocess

import pytest

from edge.deploy.provision.remote import main
from edge.deploy.provision.wanted import Wanted, steps
from edge.deploy.provision.wheels import WheelSet
from tests.support.wheels import device_facts

PULL = {"repository": "registry.example/farms/gates"}
SERVING = ["edge-recover.service", "edge-runtime.service", "edge-trial.service"]
FETCHING = ["edge-agent.socket", "edge-pull.timer"]


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Return what makes the step for a device, and what systemctl was told."""
    told = []

    def make(*, has_release, service, pull=None):
        states = {"edge-runtime.service": service}

        def run(command, **_):
            assert command[:2] == ["systemctl", "is-active"]
            return subprocess.CompletedProcess(command, 0, stdout=states.get(command[-1], "inactive") + "\n")

        monkeypatch.setattr(main.subprocess, "run", run)
        monkeypatch.setattr(main, "run", lambda command: told.append(command[1:]))
        wanted = Wanted(name="a", compatible=("any",), networks=None, keys=[], signers=[], pull=pull)
        wheels = WheelSet(paths={}, digests={}, requirements="", pip="pip.whl")
        *_, before, values = steps(wanted, device_facts(), wheels)
        assert (before["kind"], values["kind"]) == ("Brought", "Started")  # over the software that is installed by then
        path = tmp_path / values["path"].lstrip("/")
        if has_release:
            path.parent.mkdir(parents=True)
            path.touch()
        return main.Started({**values, "path": str(path)}, None)

    return make, told


@pytest.mark.parametrize(
    ("has_release", "service", "pull", "starts"),
    [
        (True, "inactive", None, SERVING),
        (True, "inactive", PULL, SERVING + FETCHING),
        (True, "active", None, []),
        (True, "activating", None, []),
        (True, "failed", None, []),
        (False, "inactive", None, []),
        (False, "inactive", PULL, FETCHING),
    ],
)
def test_what_a_boot_would_start_is_started_if_a_release_is_there_and_its_service_was_stopped(
    started, has_release, service, pull, starts
):
    make, told = started
    step = make(has_release=has_release, service=service, pull=pull)

    assert step.check() == [f"start {unit}" for unit in starts]
    step.apply()

    assert [word for command in told for word in command if "." in word] == starts
    assert [command[0] for command in told if SERVING[-1] in command] == ["--no-block"] * (SERVING[0] in starts)


def test_a_foreign_edge_runtime_on_the_path_is_left_and_stops_nothing(tmp_path):
    theirs = tmp_path / "edge-runtime"
    theirs.write_text("somebody's own\n")
    wanted = Wanted(name="a", compatible=("any",), networks=None, keys=[], signers=[])
    wheels = WheelSet(paths={}, digests={}, requirements="", pip="pip.whl")
    made = steps(wanted, device_facts(), wheels)
    (step,) = (one for one in made if one["path"] == "/usr/local/bin/edge-runtime")

    assert main.File({**step, "path": str(theirs)}, None).check() == []
    with pytest.raises(main.Conflict):
        main.File({**step, "path": str(theirs), "is_spare": False}, None).check()
