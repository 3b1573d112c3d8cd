"""From blobs to a trial: what is left on the device when a blob, a builder, a disk or the client fails on the way."""

import errno
import threading

import pytest

from edge.device.device import Device
from edge.device.durable import Durable, Files
from edge.device.state import BadRelease, Phase, Verdict, mark_bad, read_bad, read_counters
from edge.device.units import BUILD_UNIT, RUNTIME_UNIT
from edge.runtime.agent.release import build, stage, start_trial, switch
from edge.runtime.agent.session import ConnectionEnded
from edge.runtime.build.request import ask
from edge.wire.release import BuildRequest, StageRequest, SwitchRequest
from tests.support.agent_session import RESTARTED_AND_ON_TRIAL, AgentSession, hanging_up, receive
from tests.support.device_releases import leave_answer, leave_engine, request_of
from tests.support.faults import FaultyFiles
from tests.support.raised import code_of
from tests.support.wait import wait_until


@pytest.fixture
def bundle(root):
    return root.bundle(sequence=7)


@pytest.fixture
def session(root, bundle):
    """One that holds the lock and has offered a release, all of whose blobs are here."""
    return holding(root.device, bundle)


def holding(device, bundle):
    session = AgentSession(device).hold()
    session.put(bundle)
    receive(device, bundle)
    return session


def staged(session, **more):
    return stage(session, StageRequest(release=session.offer.manifest.release, **more)).release


def builds(session, do):
    session.fakes.on_start[BUILD_UNIT] = do


def makes_an_engine(session):
    builds(session, lambda: leave_engine(session.device, plan=b"a plan"))


def built(session):
    """A release that could go on trial."""
    release = staged(session)
    makes_an_engine(session)
    build(session, BuildRequest(release=release))
    session.fakes.calls.clear()
    return release


def test_a_release_of_which_a_blob_is_not_here_is_not_made(session, bundle):
    session.device.layout.blob(bundle.manifest.files[0].sha256).unlink()

    assert code_of(stage, session, StageRequest(release=bundle.manifest.release)) == "transfer.absent"
    assert session.device.releases.names() == []


def test_from_the_staging_on_no_older_release_is_taken(session):
    staged(session)

    counted = read_counters(session.device.layout, Files())
    assert (counted.sequences, counted.newest_created_at) == ({"stable": 7}, "2026-11-20T12:00:00Z")


@pytest.mark.parametrize("retry_bad", [False, True])
def test_that_a_release_has_failed_here_is_forgotten_only_on_request(session, bundle, retry_bad):
    device, release = session.device, bundle.manifest.release
    mark_bad(device.layout, device.durable, release, BadRelease(verdict=Verdict.BAD, reason="no frames", at="then"))

    staged(session, retry_bad=retry_bad)

    assert (release in read_bad(device.layout, device.durable.files)) is not retry_bad


def test_what_an_earlier_push_has_had_built_and_did_not_wait_for_is_not_built_again(session):
    release = staged(session)
    ask(session.device, release)
    key = leave_engine(session.device, plan=b"a plan").inputs.key

    answer = build(session, BuildRequest(release=release))

    assert (answer.skipped, answer.key) == (True, key)
    assert session.fakes.calls == []


def test_a_builder_that_dies_does_not_leave_the_result_of_the_build_before(session):
    release = staged(session)
    problem = {"code": "smoke.recall", "problem": "recall 0.4 of at least 0.9"}
    builds(session, lambda: leave_answer(session.device.layout, request_of(session.device), problem=problem))
    assert code_of(build, session, BuildRequest(release=release)) == "smoke.recall"

    builds(session, lambda: None)

    assert code_of(build, session, BuildRequest(release=release)) == "build.died"


def once(first, then):
    """Do one thing when it is called first, and another from then on."""
    steps = [first]
    return lambda: (steps.pop() if steps else then)()


def test_a_build_that_the_way_back_asked_for_meanwhile_is_not_taken_for_this_one(session):
    release = staged(session)

    def way_back():
        ask(session.device, "0" * 12)
        leave_answer(
            session.device.layout, request_of(session.device), problem={"code": "build.failed", "problem": "why"}
        )

    builds(session, once(way_back, lambda: leave_engine(session.device, plan=b"a plan")))

    assert build(session, BuildRequest(release=release)).key is not None
    assert session.fakes.calls.count(("start", BUILD_UNIT)) == 2


@pytest.mark.parametrize(("evidence", "starts"), [({"untried": True}, 2), ({"untried": False}, 1), ({}, 1)])
def test_software_that_nobody_has_tried_to_install_is_waited_for_once_more(session, evidence, starts):
    release = staged(session)
    problem = {"code": "build.software", "problem": "it is not here", "evidence": evidence}

    def fails():
        leave_answer(session.device.layout, request_of(session.device), problem=problem)

    builds(session, fails)

    assert code_of(build, session, BuildRequest(release=release)) == "build.software"
    assert session.fakes.calls.count(("start", BUILD_UNIT)) == starts


def test_a_disk_on_which_no_build_can_be_asked_for_has_no_result_of_an_earlier_one(root, session, bundle):
    release = built(session)
    result = session.device.layout.build_result
    assert result.exists()
    full = FaultyFiles(Files(), at=0, number=errno.ENOSPC, which={"write"})
    session.device = Device(root.layout, Durable(full))
    session.device.layout.engine(session.device.releases.engine_key(release)).rename(root.directory / "away")

    assert code_of(build, session, BuildRequest(release=release)) == "device.disk.space"
    assert not result.exists()


def test_with_detach_the_client_hears_that_it_may_go_before_the_device_builds_and_switches_alone(session):
    release = staged(session)
    told = []

    def build_when_it_is_gone():
        told.extend(session.heard())
        session.client.close()
        wait_until(lambda: session.talk.is_gone, what="the agent sees that its client is gone")
        leave_engine(session.device, plan=b"a plan")

    builds(session, build_when_it_is_gone)
    build(session, BuildRequest(release=release, detach=True))

    assert [(one.verb, one.values["detached"]) for one in told if one.verb != "progress"] == [("ok", True)]
    assert session.device.releases.current() == release
    assert session.fakes.calls == [("start", BUILD_UNIT), *RESTARTED_AND_ON_TRIAL]


def test_with_detach_a_client_that_was_gone_before_it_could_hear_so_gets_no_build(session):
    release = staged(session)
    makes_an_engine(session)
    session.client.close()

    with pytest.raises(ConnectionEnded):
        build(session, BuildRequest(release=release, detach=True))
    assert session.fakes.calls == []


def test_a_switch_arms_then_moves_then_restarts_and_has_the_trial_begun(session):
    release = built(session)

    switch(session, SwitchRequest(release=release, confirm=True))

    state = session.device.state()
    assert (state.phase, state.target, state.confirm) == (Phase.TRIAL, release, True)
    assert session.device.releases.current() == release
    assert session.fakes.calls == RESTARTED_AND_ON_TRIAL


def test_from_before_it_is_armed_a_switch_outlives_the_session_of_its_client(root, session, endings):
    release = built(session)
    session.device = Device(root.layout, hold=hanging_up)

    switch(session, SwitchRequest(release=release))

    assert endings == []
    assert session.fakes.calls == RESTARTED_AND_ON_TRIAL


def test_a_client_that_leaves_while_the_service_restarts_takes_no_trial_with_it(session):
    release = built(session)
    begun = threading.Event()

    def restart():
        session.client.close()
        begun.set()
        wait_until(lambda: session.talk.is_gone, what="the agent sees that its client is gone")

    session.fakes.on_start[RUNTIME_UNIT] = restart
    start_trial(session, release, confirm=False, offer=session.offer)

    assert begun.is_set()
    assert session.fakes.calls == RESTARTED_AND_ON_TRIAL
