"""What a person asks of a device besides a push: only with the lock, only what may be chosen, and to its end."""

import pytest

from edge.device.device import Device
from edge.device.state import Phase, read_bad
from edge.device.units import BUILD_UNIT
from edge.runtime.agent.release import confirm, gc, rollback
from edge.runtime.software import install
from edge.runtime.software.install import keep_software
from edge.runtime.trial.soundness import problem_of_release
from edge.wire.peer import Nothing
from edge.wire.release import ConfirmRequest, RollbackRequest
from tests.support.agent_session import RESTARTED, RESTARTED_AND_ON_TRIAL, AgentSession, hanging_up
from tests.support.device_releases import PARTS, attach_engine, make_device, put_on_trial, serving, stage
from tests.support.raised import code_of, error_of
from tests.support.wheels import software_files, tiny


@pytest.fixture
def device(tmp_path):
    return make_device(tmp_path)


@pytest.fixture
def session(device):
    return AgentSession(device).hold()


def test_a_release_that_awaits_a_person_is_confirmed_also_without_its_name(device, session):
    release = stage(device)
    attach_engine(device, release)
    put_on_trial(device, release, confirm=True)

    assert confirm(session, ConfirmRequest()).release == release
    assert device.state().confirm is False


def test_with_nothing_on_trial_there_is_nothing_to_confirm(session):
    error = error_of(confirm, session, ConfirmRequest())
    assert (error.code, error.problem) == ("request.not-armed", "no release is on trial")
    assert "edge-deploy status" in error.hint


def test_clearing_up_removes_what_nobody_needs_and_says_so(device, session):
    serves, staged = serving(device), stage(device, sequence=2)

    assert gc(session, Nothing()).releases == (staged,)
    assert device.releases.names() == [serves]


def test_the_way_back_is_gone_to_its_end_although_the_session_of_the_client_ends(device, endings):
    old, _ = serving(device, sequence=1), serving(device, sequence=2)
    session = AgentSession(Device(device.layout, hold=hanging_up)).hold()

    assert rollback(session, RollbackRequest()).release == old

    assert endings == []
    assert device.releases.current() == old
    assert session.fakes.calls == RESTARTED


def test_with_no_release_before_this_one_a_person_is_told_what_to_name(device, session):
    serving(device)

    error = error_of(rollback, session, RollbackRequest())

    assert error.code == "request.rollback"
    assert "--to" in error.hint


def test_going_back_by_name_to_one_that_is_kept_is_a_trial(device, session):
    old, _ = serving(device, sequence=1), serving(device, sequence=2)

    assert rollback(session, RollbackRequest(to=old)).on_trial

    assert (device.state().phase, device.state().target) == (Phase.TRIAL, old)
    assert session.fakes.calls == RESTARTED_AND_ON_TRIAL


@pytest.fixture
def bringing(device, monkeypatch):
    """The release before the one that serves; its software is not here."""
    monkeypatch.setattr(install, "why_no_start", lambda _folder: None)
    device.layout.software.mkdir(parents=True)
    old = serving(device, files={**PARTS, **software_files(tiny())})
    serving(device, sequence=2)
    return old


@pytest.mark.parametrize("is_named", [True, False])
def test_the_software_of_a_release_that_is_gone_back_to_is_installed_before(device, session, bringing, is_named):
    session.fakes.on_start[BUILD_UNIT] = lambda: keep_software(device)  # whom the builder's unit pulls in

    assert rollback(session, RollbackRequest(to=bringing if is_named else None)).release == bringing

    assert session.fakes.calls[0] == ("start", BUILD_UNIT)
    assert problem_of_release(device, bringing) is None


def test_one_whose_software_cannot_be_had_is_not_put_on_trial_and_fails_no_judgement(device, session, bringing):
    assert code_of(rollback, session, RollbackRequest(to=bringing)) == "device.software.missing"

    assert device.state().phase is Phase.IDLE
    assert read_bad(device.layout, device.durable.files) == {}


def test_a_wheel_that_is_gone_too_is_said_and_nothing_is_started(device, session, bringing):
    for path, sha256 in device.releases.blobs(bringing).items():
        if path.startswith("wheels/"):
            device.layout.blob(sha256).unlink()

    assert code_of(rollback, session, RollbackRequest(to=bringing)) == "device.release.missing"
    assert session.fakes.calls == []


def test_one_that_is_not_kept_cannot_be_gone_back_to_and_what_is_kept_is_listed(device, session):
    kept = serving(device)

    error = error_of(rollback, session, RollbackRequest(to="0" * 12))

    assert error.code == "request.rollback"
    assert kept in error.hint


def test_one_whose_signature_is_not_of_its_manifest_is_not_gone_back_to(device, session):
    old, new = serving(device, sequence=1), serving(device, sequence=2)
    signature = device.layout.release(old) / "manifest.json.sig"
    signature.unlink()
    signature.write_bytes(device.releases.signature(new))

    error = error_of(rollback, session, RollbackRequest(to=old))

    assert error.code == "verify.signature.invalid"
    assert error.problem.startswith(f"release {old}: ")
    assert device.releases.current() == new
    assert session.fakes.calls == []
