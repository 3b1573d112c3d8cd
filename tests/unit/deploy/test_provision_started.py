"""What provision starts: what fetches, and, where a release was served before an undo, what serves, as a boot would."""

import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest

from edge.delivery.outcome import Report
from edge.deploy.provision.admin import StepsAnswer
from edge.deploy.provision.provision import provision
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


@pytest.mark.parametrize(
    ("credentials", "pull", "is_told"), [((), PULL, True), (("registry-login",), PULL, False), ((), None, False)]
)
def test_a_device_that_is_to_fetch_without_a_login_is_told_of(credentials, pull, is_told):
    facts = replace(device_facts(), has_key=True, has_signer=True, credentials=credentials)
    nothing = StepsAnswer(changes=(), conflicts=(), failed=None, applied=False)
    shell = SimpleNamespace(address=SimpleNamespace(host="a"), facts=lambda: facts, steps=lambda request: nothing)
    software = SimpleNamespace(wheels=lambda facts: WheelSet(paths={}, digests={}, requirements="", pip="pip.whl"))
    wanted = Wanted(name="a", compatible=("any",), networks=None, keys=[], signers=[], pull=pull)
    events = []

    provision(shell, wanted, software=software, is_plan=True, report=Report("a", events.append))

    assert any("registry-login" in (event.hint or "") for event in events) == is_told


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
