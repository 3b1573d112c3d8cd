"""Whoever is killed, and whenever: the lock is free within a second, the device is whole, the next push converges."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from edge.delivery.link import Link
from edge.device.facts import this_moment
from edge.device.lock import PushLock
from edge.device.state import Phase
from edge.device.switch import arm
from edge.wire.release import LockRequest
from edge.wire.verbs import LOCK
from tests.support.wait import wait_looks, wait_until

pytestmark = pytest.mark.slow_but(reason="further pushes over real agents: the first row of each test is quick")

CLIENT = Path(__file__).parents[2] / "support" / "push_process.py"
PHASES = ["lock", "upload", "stage", "build", "switch", "trial"]


def _wait_until_free(device, *, seconds=1.0):
    wait_looks(lambda: PushLock(device.layout).holder() is None, what="the lock is free", seconds=seconds)


def _serves(device):
    """Return the release that serves, which is whole whatever happened."""
    current = device.device.releases.current()
    assert current is None or device.device.releases.is_ready(current)
    return current


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.promised(reason="a push ends well or not at all")
def test_f6_an_agent_killed_in_any_state_is_called_again_and_the_push_ends_well(device, phase):
    old, new = device.bundle("one"), device.bundle("two", sequence=2, model=os.urandom(3_000_000))
    device.push(old)
    device.script(build_s=0.5, trial_s=1.0)
    freed = []

    def kill_once(event):
        if (event.phase, event.event) == (phase, "begin") and not freed:
            os.kill(device.agent_pid(), signal.SIGKILL)
            _wait_until_free(device)
            freed.append(phase)
            assert _serves(device) in (old.manifest.release, new.manifest.release)

    outcome = device.push(new, on_event=kill_once)
    assert (outcome.result, outcome.exit_code) == ("committed", 0)
    assert freed == [phase]
    assert _serves(device) == new.manifest.release


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.promised(reason="a push ends well or not at all")
def test_f7_a_client_killed_in_any_state_leaves_a_device_that_ends_it_alone_or_not_at_all(device, phase):
    old, new = device.bundle("one"), device.bundle("two", sequence=2, model=os.urandom(3_000_000))
    device.push(old)
    device.script(build_s=0.2, trial_s=1.0)
    spec = {"root": str(device.root), "bundle": str(new.path), "die_at": phase}
    client = subprocess.run([sys.executable, str(CLIENT), json.dumps(spec)], timeout=60, check=False)
    assert client.returncode == -signal.SIGKILL
    _wait_until_free(device)
    if phase == "trial":
        wait_until(lambda: device.device.state().phase is Phase.IDLE, what="the device ends the trial alone")
        assert _serves(device) == new.manifest.release
    else:
        assert _serves(device) == old.manifest.release
    assert device.push(new).result in ("committed", "unchanged")
    assert _serves(device) == new.manifest.release


def test_f7_the_lock_is_free_within_a_second_after_the_client_is_killed_over_ssh(device, sshd):
    device.script(build="hang")
    bundle = device.bundle()
    spec = {"config": str(sshd.address().config), "bundle": str(bundle.path)}
    client = subprocess.Popen([sys.executable, str(CLIENT), json.dumps(spec)])
    wait_until(lambda: device.layout.build_request.exists(), what="the push builds")
    client.send_signal(signal.SIGKILL)
    client.wait(60)
    _wait_until_free(device)


@pytest.mark.slow(reason="a push that goes on alone")
def test_f7_an_agent_whose_client_dies_right_after_the_request_to_switch_finishes_alone(device):
    bundle = device.bundle()
    device.push(bundle)
    second = device.bundle("two", sequence=2)
    device.script(restart_s=4.0)
    stop = threading.Event()

    def stop_in_switch(event):
        if (event.phase, event.event) == ("switch", "begin"):
            wait = threading.Thread(target=_stop_when_armed, args=(device, stop))
            wait.start()

    outcome = device.push(second, stop=stop, on_event=stop_in_switch)
    assert outcome.result == "interrupted"
    assert device.device.state().phase is Phase.TRIAL
    wait_until(lambda: device.device.state().phase is Phase.IDLE, what="the device ends the trial alone")
    assert _serves(device) == second.manifest.release


def _stop_when_armed(device, stop):
    wait_until(lambda: device.device.state().phase is Phase.TRIAL, what="the switch is armed")
    stop.set()


def test_f8_an_agent_whose_client_says_nothing_ends_and_gives_the_lock_back(device):
    with contextlib.closing(Link(device.connect_impatient(silence_s=0.5), threading.Event())) as link:
        link.ask(LOCK, LockRequest(who="tester", why="test"))
        assert PushLock(device.layout).holder()["who"] == "tester"
        _wait_until_free(device, seconds=2.0)


@pytest.mark.promised(reason="a push ends well or not at all")
def test_f6_a_trial_that_nobody_judges_is_judged_once_the_next_push_asks_for_the_lock(device):
    first, second, third = (device.bundle(name, sequence=number) for number, name in enumerate("abc", start=1))
    device.push(first)
    device.push(second)
    now = this_moment()
    # What an agent leaves that is killed right after it has armed.
    arm(device.device, first.manifest.release, moment=replace(now, boottime_ns=now.boottime_ns - 30_000_000_000))

    outcome = device.push(third, lock_wait_s=30.0)

    assert (outcome.result, outcome.exit_code) == ("committed", 0), outcome
    assert device.device.state().fallback == first.manifest.release


def test_f6_a_trial_that_has_just_begun_is_left_alone(device):
    first, second, third = (device.bundle(name, sequence=number) for number, name in enumerate("abc", start=1))
    device.push(first)
    device.push(second)
    arm(device.device, first.manifest.release, moment=this_moment())

    outcome = device.push(third)

    assert (outcome.result, outcome.code) == ("refused", "lock.trial")
    assert _serves(device) == second.manifest.release
