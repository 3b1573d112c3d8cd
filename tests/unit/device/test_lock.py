"""The locks, between real processes."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from edge.device.layout import Layout
from edge.device.lock import PushLock, engines_lock, service_lock, state_lock
from edge.errors import DeployError
from tests.support.command_line import command
from tests.support.wait import wait_looks

ROOT = Path(__file__).parents[3]
HOLD = """
import sys
from pathlib import Path
from edge.device.layout import Layout
from edge.device.lock import PushLock, service_lock, state_lock
layout = Layout(Path(sys.argv[1]))
locks = {
    "push": lambda: PushLock(layout).acquire("mina@bench", "push of 81c2e4aa90f1"),
    "state": lambda: state_lock(layout),
    "service": lambda: service_lock(layout.root),
}
with locks[sys.argv[2]]():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path)


@pytest.fixture
def held(layout):
    """A function that starts a process which holds a lock until its stdin ends."""
    started = []

    def hold(kind):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(layout.root), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        started.append(process)
        assert process.stdout.readline() == b"held\n"
        return process

    yield hold
    for process in started:
        process.kill()
        with process:  # waits, and closes its pipes
            pass


def test_f10_the_second_push_is_told_who_holds_the_lock_since_when_and_why(layout, held):
    held("push")
    with (
        pytest.raises(DeployError, match=r"held by mina@bench since 20.*Z \(push of 81c2e4aa90f1\)") as failure,
        PushLock(layout).acquire("other", "push"),
    ):
        pass
    assert failure.value.code == "lock.held"
    assert failure.value.exit_code == 5
    assert {"who", "why", "since", "pid"} <= set(failure.value.evidence)
    assert PushLock(layout).holder()["who"] == "mina@bench"


@pytest.mark.parametrize("variable", ["STATE_DIRECTORY", "RUNTIME_DIRECTORY"])
def test_a_second_service_on_the_folders_of_one_that_runs_ends_and_leaves_them_alone(
    layout, held, variable, monkeypatch
):
    first = held("service")
    before = {path: path.stat().st_ino for path in layout.root.iterdir()}
    monkeypatch.setenv(variable, str(layout.root))
    told = command("edge-runtime", "run", layout.root / "no-such.yaml", expected=2).stderr
    assert f"{layout.root}: another edge-runtime (pid {first.pid}) uses this folder" in told
    assert {path: path.stat().st_ino for path in layout.root.iterdir()} == before

    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert "no-such.yaml" in command("edge-runtime", "run", layout.root / "no-such.yaml", expected=2).stderr


def test_a_folder_that_cannot_be_locked_keeps_no_service_away(tmp_path):
    (tmp_path / ".edge-runtime.lock").mkdir()
    with service_lock(tmp_path):
        pass


def test_f6_the_lock_of_a_killed_process_is_free(layout, held):
    process = held("push")
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)
    wait_looks(lambda: PushLock(layout).holder() is None, what="the lock is free", seconds=1.0)
    with PushLock(layout).acquire("other", "push"):
        assert json.loads(layout.push_lock.read_bytes())["who"] == "other"
    assert layout.push_lock.read_bytes() == b""


def test_the_lock_is_given_back_when_the_block_fails(layout):
    with pytest.raises(KeyError), PushLock(layout).acquire("a", "b"):
        raise KeyError
    with PushLock(layout).acquire("a", "b"):
        pass


def test_a_process_that_the_holder_started_does_not_inherit_the_lock(layout):
    with PushLock(layout).acquire("a", "b"):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        with PushLock(layout).acquire("a", "c"):
            pass
    finally:
        child.communicate(b"\n", timeout=10)


def test_the_state_lock_is_waited_for(layout, held):
    process = held("state")
    process.stdin.close()
    with state_lock(layout):
        assert process.wait(timeout=10) == 0


def test_the_state_lock_is_not_waited_for_for_ever(layout, held):
    held("state")
    with pytest.raises(DeployError) as failure, state_lock(layout, deadline_s=0.1):
        pass
    assert failure.value.code == "lock.state"


def test_a_lock_that_is_waited_for_leaves_the_core_to_others_between_two_tries(layout, held, monkeypatch):
    held("state")
    tries, flock = [], fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lambda *arguments: (tries.append(arguments), flock(*arguments)))
    with pytest.raises(DeployError), state_lock(layout, deadline_s=0.2):
        pass
    assert 1 <= len(tries) <= 12  # one each 20 ms, and one at each end


def test_a_lock_folder_that_cannot_be_made_is_a_typed_error(tmp_path):
    (tmp_path / "run").write_bytes(b"")
    with pytest.raises(DeployError) as failure, PushLock(Layout(tmp_path)).acquire("a", "b"):
        pass
    assert failure.value.code.startswith("device.disk.")


def test_a_link_in_the_place_of_the_lock_is_not_followed(layout, tmp_path):
    layout.run.mkdir(parents=True)
    precious = tmp_path / "precious"
    precious.write_bytes(b"1")
    layout.push_lock.symlink_to(precious)
    with pytest.raises(DeployError), PushLock(layout).acquire("a", "b"):
        pass
    assert precious.read_bytes() == b"1"


def test_engines_are_built_by_one_at_a_time_and_the_next_has_its_turn(layout):
    layout.workshop.mkdir(parents=True)
    stop = threading.Event()
    before = sorted(os.listdir("/proc/self/fd"))
    with engines_lock(layout, within_s=0, stop=stop) as first, engines_lock(layout, within_s=0, stop=stop) as second:
        assert (first, second) == (True, False)
    with engines_lock(layout, within_s=0, stop=stop) as third:
        assert third
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_without_a_folder_of_the_builder_there_is_no_turn_to_wait_for(layout):
    with pytest.raises(DeployError) as failure, engines_lock(layout, within_s=0, stop=threading.Event()):
        pass
    assert failure.value.code.startswith("device.disk")


def test_a_full_disk_keeps_nobody_from_the_lock(layout, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("edge.device.lock.os.pwrite", full)
    lock = PushLock(layout)
    with lock.acquire("a@b", "push"), pytest.raises(DeployError) as refused, lock.acquire("c@d", "push"):
        pass

    assert refused.value.code == "lock.held"
    assert lock.holder() is None
