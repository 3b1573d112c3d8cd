"""Which software may take a turn as agent or pull: that of a release which serves, proven, and undoubted."""

import os
from dataclasses import replace

import pytest

from edge.bundle.manifest import Role
from edge.device.bad import BadRelease, Verdict, mark_bad
from edge.device.lock import PushLock
from edge.device.moment import this_moment
from edge.device.software import Installation
from edge.device.state import Phase
from edge.device.switch import refuse, roll_back
from edge.runtime.software import answering, running
from edge.runtime.software.answering import agent_turns, answer_in_turn
from edge.runtime.software.followed import followed
from tests.support.device_releases import TOML, attach_engine, make_device, put_on_trial, serving, signer_of, stage
from tests.support.wheels import key_of, software_files, tiny

PARTS = {"model.onnx": (Role.MODEL, b"m"), "pipeline.yaml": (Role.PIPELINE, b"p")}
SOFTWARE = software_files(tiny())
WANTED = Installation(key=key_of(SOFTWARE), beside=running.installed())


@pytest.fixture
def device(tmp_path):
    """A device that serves a release which brings software, which is here."""
    device = make_device(tmp_path / "device")
    device.layout.software.mkdir(parents=True)
    serving(device, files={**PARTS, **SOFTWARE})
    device.software.install(WANTED, {"edge/__init__.py": b""}.items(), program=b"")
    return device


def test_the_software_of_a_proven_release_may_take_a_turn(device):
    assert followed(device) == WANTED


def test_it_may_also_after_another_release_was_refused_and_undone(device):
    put_on_trial(device, _later(device))
    refuse(device, "trial.frames")
    roll_back(device, "trial.frames", moment=this_moment())

    assert device.state().attempts == 1
    assert followed(device) == WANTED


def test_a_release_that_brings_none_has_none(device):
    serving(device, files=PARTS, sequence=2)

    assert followed(device) is None


def test_nothing_serves_nothing_may(tmp_path):
    assert followed(make_device(tmp_path / "other")) is None


def on_trial(device):
    put_on_trial(device, _later(device))


def _later(device):
    release = stage(device, {**PARTS, **SOFTWARE, "model.onnx": (Role.MODEL, b"n")}, sequence=2)
    attach_engine(device, release)
    return release


def state_of(**changes):
    def change(device):
        device.write_state(replace(device.state(), **changes))

    return change


def bad(device):
    verdict = BadRelease(verdict=Verdict.SUSPECT, reason="it failed", at=this_moment().at)
    mark_bad(device.layout, device.durable, device.releases.current(), verdict)


def revoked(device):
    # The signer is known no more: what serves goes on, and takes nothing.
    device.layout.former_signers.write_bytes(device.layout.allowed_signers.read_bytes())
    public = signer_of(device, "another").with_suffix(".pub").read_text()
    device.layout.allowed_signers.write_text(f'other namespaces="edge-release" {public}')


DOUBTS = {
    "on trial": on_trial,
    "failed": state_of(phase=Phase.FAILED, reason="nothing to go back to"),
    "suspect": bad,
    "its signer is withdrawn": revoked,
    "nobody says whose signature counts": lambda device: device.layout.allowed_signers.unlink(),
    "there is no state": lambda device: device.layout.state.unlink(),
    "the state is damaged": lambda device: device.layout.state.write_bytes(b"{}"),
    "the state is a fifo": lambda device: (device.layout.state.unlink(), os.mkfifo(device.layout.state)),
    "current leads elsewhere": lambda device: (device.layout.current.unlink(), device.layout.current.symlink_to("/")),
    "no lock can be looked at": lambda device: (device.layout.run.rmdir(), device.layout.run.write_text("")),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_where_there_is_any_doubt_nobody_but_what_is_installed_may(device, doubt):
    for lock in device.layout.run.iterdir():
        lock.unlink()
    DOUBTS[doubt](device)

    assert followed(device) is None


def test_while_a_push_holds_the_lock_only_who_is_part_of_it_may(device):
    with PushLock(device.layout).acquire("somebody", "a push"):
        assert followed(device) is None
        assert followed(device, may_be_busy=True) == WANTED


def test_a_release_that_a_stranger_has_signed_brings_nobody(device):
    parts = {**PARTS, **SOFTWARE, "model.onnx": (Role.MODEL, b"another")}
    forged = stage(device, parts, key=signer_of(device, "stranger"), sequence=3)
    device.layout.current.unlink()
    device.layout.current.symlink_to(f"releases/{forged}")

    assert followed(device) is None


class Ended:
    """How an agent has ended, as who stands between tells it."""

    def __init__(self, status=0, owed=None, *, is_taken=False, does=lambda: None):
        self.status, self.is_taken, self.does = status, is_taken, does
        self._owed = owed

    def owed(self, status):
        assert status == self.status
        return self._owed


@pytest.fixture
def answered(monkeypatch):
    """Return who was run instead of this process, and has it end as told."""
    ran, ends = [], []

    def run(command, environment, *, client, patience):
        ran.append((command[-1], patience))
        end = ends.pop(0) if ends else Ended()
        if isinstance(end, Exception):
            raise end
        end.does()
        return end.status, end

    monkeypatch.setattr(answering, "between", run)
    monkeypatch.delenv("SSH_ORIGINAL_COMMAND", raising=False)
    return ran, ends


def agent(device, *words):
    return answer_in_turn(["agent", "--root", str(device.layout.root), *words])


def test_turns_go_on_while_all_is_well(device, answered):
    assert [agent(device) for _ in range(4)] == [None, 0, 0, 0]


@pytest.mark.parametrize(
    ("end", "status"),
    [(Ended(0, "any"), 0), (Ended(3, "any"), 3), (Ended(-9, "any"), 137)],
    ids=["cut", "error", "killed"],
)
def test_what_does_not_end_well_has_every_second_turn_at_most(device, answered, end, status):
    answered[1].extend([end] * 3)

    assert [agent(device) for _ in range(6)] == [None, status] * 3


def test_what_was_owed_is_asked_of_what_is_installed_first(device, answered):
    answered[1].append(Ended(0, "plan"))
    assert [agent(device) for _ in range(5)] == [None, 0, None, None, None]
    agent_turns(device.layout).asked("plan")

    assert agent(device) == 0


def test_an_agent_that_says_it_has_switched_and_has_not_owes_a_push(device, answered):
    answered[1].append(Ended(is_taken=True))
    assert [agent(device), agent(device)] == [None, 0]
    assert agent_turns(device.layout).owed == "plan"
    agent_turns(device.layout).asked("plan")

    answered[1].append(Ended(is_taken=True, does=lambda: device.write_state(replace(device.state(), boots=1))))
    assert [agent(device), agent(device)] == [0, 0]


def test_a_fault_of_who_stands_between_costs_a_turn_and_no_more(device, answered):
    answered[1].extend([OSError("no process"), Ended()])
    assert agent(device) is None
    with pytest.raises(OSError, match="no process"):
        agent(device)

    assert [agent(device), agent(device)] == [None, 0]


def test_a_fault_in_the_choice_is_no_end_of_what_is_installed(device, answered, monkeypatch, capsys):
    agent(device)
    monkeypatch.setattr(answering, "followed", lambda *_, **__: 1 / 0)

    assert agent(device) is None
    assert "cannot answer: ZeroDivisionError" in capsys.readouterr().err


def test_what_is_damaged_answers_nobody_and_that_is_said(device, answered, capsys):
    agent(device)
    (device.layout.software / WANTED.name / "lib/edge/__init__.py").write_bytes(b"evil")

    assert [agent(device), agent(device)] == [None, None]
    assert "is damaged: lib/edge/__init__.py; what is installed goes on alone" in capsys.readouterr().err


def test_who_asks_for_what_is_installed_gets_it_and_takes_no_turn(device, answered, monkeypatch):
    agent(device)
    assert agent(device, "--installed") is None
    monkeypatch.setenv("SSH_ORIGINAL_COMMAND", "edge-runtime agent --installed")
    assert agent(device) is None
    for other in ("edge-runtime agent", "edge-runtime agent --installed x", "--installed", ""):
        monkeypatch.setenv("SSH_ORIGINAL_COMMAND", other)
        assert agent(device) == 0


def test_the_agent_of_a_look_is_of_the_software_that_looks(device, answered):
    device.layout.pull_by.parent.mkdir(parents=True)
    assert agent(device, "--for-pull") is None
    device.layout.pull_by.write_text(WANTED.name)
    assert [agent(device, "--for-pull") for _ in range(3)] == [0, 0, 0]
    for other in ("", "a" * 64, "../" * 20, WANTED.name[:-1]):
        device.layout.pull_by.write_text(other)
        assert agent(device, "--for-pull") is None


def test_how_long_one_may_go_on_alone_is_as_long_as_its_builds_may_take(device, answered):
    device.layout.device_toml.write_text(TOML + "build_deadline_s = 600\ngolden_deadline_s = 60\n")
    agent(device)
    agent(device)

    ((_, patience),) = answered[0]
    assert patience.alone_s["build"] == 2 * 660 + 900
    device.layout.device_toml.write_text("what = ever")
    agent(device)
    assert answered[0][-1][1].alone_s["build"] == 6 * 3600 + 900


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder to somebody else")
def test_root_runs_nothing_for_a_device_of_somebody_else_and_leaves_nothing_there(device, answered):
    agent(device)
    before = sorted(device.layout.run.iterdir())
    os.chown(device.layout.var, 12345, 12345)

    assert agent(device) is None
    assert sorted(device.layout.run.iterdir()) == before
