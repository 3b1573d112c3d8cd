"""A release is offered: with the lock, as what it is, and only where nothing that is known stands against it."""

import dataclasses

import pytest

from edge.device.facts import gather_facts
from edge.device.state import BadRelease, Phase, State, Verdict, mark_bad
from edge.device.units import TRIAL_UNIT
from edge.errors import DeployError
from edge.runtime.agent import accept
from edge.runtime.agent.offer import plan, put_manifest
from edge.runtime.agent.session import bytes_of
from tests.support.agent_session import AgentSession, offer_of
from tests.support.raised import code_of, error_of

MIB = 1024 * 1024


@pytest.fixture
def session(root):
    return AgentSession(root.device).hold()


def refusal(session, bundle):
    return code_of(put_manifest, session, offer_of(bundle))


def test_what_stands_against_a_release_is_told_by_a_plan_and_refuses_its_offer(root, session):
    bundle = root.bundle()
    (root.root / "etc/systemd/system" / TRIAL_UNIT).unlink()

    assert [one.code for one in plan(session, offer_of(bundle)).refusals] == ["preflight.units"]
    assert refusal(session, bundle) == "preflight.units"
    assert session.offer is None


def test_a_check_that_cannot_be_made_hides_none_before_it(root, session, monkeypatch):
    bundle = root.bundle()
    (root.root / "etc/systemd/system" / TRIAL_UNIT).unlink()

    def unreadable(*_):
        raise DeployError("device.disk.io", "bad.json: Input/output error")

    monkeypatch.setattr(accept, "read_bad", unreadable)

    assert [one.code for one in plan(session, offer_of(bundle)).refusals] == ["preflight.units", "device.disk.io"]


def test_a_release_against_which_nothing_stands_is_on_offer_from_then_on(root, session):
    bundle = root.bundle()

    assert put_manifest(session, offer_of(bundle)).signer == "ops"
    assert session.offer.manifest.release == bundle.manifest.release


def test_without_the_lock_nothing_is_offered(root):
    unlocked = AgentSession(root.device)
    assert refusal(unlocked, root.bundle()) == "request.order"
    assert unlocked.offer is None


def test_a_disk_that_is_full_of_what_nobody_needs_is_cleared_up_for_a_release(root, session, monkeypatch):
    unneeded = root.layout.blob("0" * 64)
    unneeded.parent.mkdir()
    with unneeded.open("wb") as file:
        file.truncate(90 * MIB)

    def on_a_disk_of_100_mib(layout):
        used = sum(path.stat().st_size for path in layout.store.glob("*/*"))
        return dataclasses.replace(gather_facts(layout), disk_bytes=100 * MIB, disk_free_bytes=100 * MIB - used)

    monkeypatch.setattr(accept, "gather_facts", on_a_disk_of_100_mib)
    bundle = root.bundle()
    assert plan(session, offer_of(bundle)).refusals == ()
    assert unneeded.exists()

    assert put_manifest(session, offer_of(bundle)).release == bundle.manifest.release
    assert not unneeded.exists()


def test_a_disk_that_is_full_of_what_is_needed_is_told_by_a_plan(root, session, monkeypatch):
    def on_a_disk_of_100_mib(layout):
        return dataclasses.replace(gather_facts(layout), disk_bytes=100 * MIB, disk_free_bytes=10 * MIB)

    monkeypatch.setattr(accept, "gather_facts", on_a_disk_of_100_mib)
    bundle = root.bundle()

    assert [one.code for one in plan(session, offer_of(bundle)).refusals] == ["preflight.space"]
    assert refusal(session, bundle) == "preflight.space"


def test_what_is_no_base64_is_told_by_its_name():
    assert bytes_of("AP8=", "the manifest") == b"\x00\xff"
    error = error_of(bytes_of, "no base64!", "the manifest")
    assert (error.code, "the manifest" in error.problem) == ("request.value", True)


def test_a_release_that_has_failed_here_is_refused_with_its_reason_unless_a_person_wants_it(root, session):
    device, bundle = root.device, root.bundle()
    bad = BadRelease(verdict=Verdict.BAD, reason="no frames", at="then")
    mark_bad(device.layout, device.durable, "1" * 12, bad)
    put_manifest(session, offer_of(bundle))

    mark_bad(device.layout, device.durable, bundle.manifest.release, bad)
    error = error_of(put_manifest, session, offer_of(bundle))
    assert (error.code, "no frames" in error.problem) == ("preflight.bad", True)
    put_manifest(session, dataclasses.replace(offer_of(bundle), retry_bad=True))


def test_a_device_that_has_stopped_trying_takes_nothing_until_a_person_has_looked(root, session):
    bundle = root.bundle()
    root.device.write_state(State(phase=Phase.FAILED, reason="no way back"))

    error = error_of(put_manifest, session, offer_of(bundle))
    assert (error.code, "no way back" in error.problem) == ("person.failed", True)
    put_manifest(session, dataclasses.replace(offer_of(bundle), retry_bad=True))
