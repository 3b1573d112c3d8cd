"""A trial that nobody judges, since the agent that armed it was killed: who asks for the lock next gives it a judge."""

import dataclasses
import errno

import pytest

from edge.device.device import Device
from edge.device.durable import Durable, Files
from edge.device.facts import this_moment
from edge.device.lock import PushLock
from edge.device.switch import arm, switch_to
from edge.device.units import TRIAL_UNIT
from edge.runtime.agent.serve import lock_or_take_up
from edge.wire.release import LockRequest
from tests.support.agent_session import RESTARTED_AND_ON_TRIAL, AgentSession, hanging_up
from tests.support.device_releases import attach_engine, serving, stage
from tests.support.faults import FaultyFiles
from tests.support.raised import code_of

HOUR_NS = 3600 * 10**9


@pytest.fixture
def orphan(root):
    """A release that was put on trial an hour ago; what served before it still does."""
    device = root.device
    root.layout.device_toml.write_text(root.layout.device_toml.read_text().replace('"lab"', '"any"'))
    serving(device)
    release = stage(device, sequence=2)
    attach_engine(device, release, plan=b"another plan")
    moment = this_moment()
    arm(device, release, moment=dataclasses.replace(moment, boottime_ns=moment.boottime_ns - HOUR_NS))
    return release


def take_up(session):
    """Ask for the lock as a push does; return why it is not given."""
    return code_of(lock_or_take_up, session, LockRequest(who="mina", why="push"))


def age_s(device):
    return (this_moment().boottime_ns - device.state().started_boottime_ns) / 1e9


def test_it_is_switched_to_and_its_judge_is_started_although_the_push_is_told_to_wait(root, orphan):
    session = AgentSession(root.device)

    assert take_up(session) == "lock.trial"

    assert session.fakes.calls == RESTARTED_AND_ON_TRIAL
    assert root.device.releases.current() == orphan
    assert PushLock(root.layout).holder() is None


def test_the_hour_in_which_nobody_looked_does_not_count_against_it(root, orphan):
    take_up(AgentSession(root.device))
    assert age_s(root.device) < 600


def test_its_time_begins_anew_before_the_switch_moves(root, orphan):
    full = FaultyFiles(Files(), at=0, number=errno.ENOSPC, which={"symlink"})
    session = AgentSession(Device(root.layout, Durable(full)))

    assert take_up(session) == "device.disk.space"

    assert full.failed
    assert age_s(root.device) < 600
    assert root.device.releases.current() != orphan
    assert session.fakes.calls == []


def test_nobody_else_gets_the_lock_meanwhile(root, orphan):
    session = AgentSession(root.device)
    holders = []
    session.fakes.on_start[TRIAL_UNIT] = lambda: holders.append(PushLock(root.layout).holder())

    take_up(session)

    assert [one["who"] for one in holders] == ["mina"]


def test_it_is_finished_although_the_session_of_the_client_ends(root, orphan, endings):
    session = AgentSession(Device(root.layout, hold=hanging_up))

    assert take_up(session) == "lock.trial"

    assert endings == []
    assert session.fakes.calls == RESTARTED_AND_ON_TRIAL


def test_one_that_has_a_judge_is_left_to_it(root, orphan):
    switch_to(root.device, orphan)
    session = AgentSession(root.device)
    session.fakes.start(TRIAL_UNIT, wait=False, timeout_s=1)
    session.fakes.calls.clear()

    assert take_up(session) == "lock.trial"
    assert session.fakes.calls == []
