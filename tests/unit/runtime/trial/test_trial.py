"""Trials and ways back on a device in a folder: real state, real switch, health files as a service would write them."""

import json
from dataclasses import replace

import pytest

from edge.bundle.manifest import Role
from edge.device.facts import this_moment
from edge.device.state import Phase, read_bad
from edge.device.switch import MAX_ATTEMPTS_PER_BOOT, confirm, roll_back
from edge.device.units import RUNTIME_UNIT, TRIAL_UNIT
from edge.reading import available_bytes
from edge.reports import UnitState
from edge.runtime.build.request import BuildResult, read_progress, read_request
from edge.runtime.trial.rollback import go_back, go_to, is_needed, recover_at_boot
from edge.runtime.trial.trial import REFUSED, Trial, run_trial
from edge.wire.peer import Problem
from tests.support.audit import audit_lines
from tests.support.device_releases import attach_engine, flip, put_on_trial, serving
from tests.support.logged import logged
from tests.support.raised import code_of, error_of
from tests.support.trial_service import Service
from tests.support.units import FakeUnits, failed_units


@pytest.fixture
def two(device):
    """A release that served, and the one that does."""
    return serving(device, sequence=1), serving(device, sequence=2)


def recorded(device):
    """Return what stands in the audit log of a device that decides by itself."""
    lines = audit_lines(device.layout)
    assert {(line["who"], line["from"]) for line in lines} <= {("device", "local")}
    return [(line["what"], line["release"], line["result"]) for line in lines]


def verdict_of(device, service, units=None):
    return run_trial(device, units or FakeUnits(RUNTIME_UNIT), service.trial())


def test_a_good_release_is_committed_and_the_old_one_is_its_fallback(device, switched):
    old, new, service = switched

    assert verdict_of(device, service) == 0

    state = device.state()
    assert (state.phase, state.fallback, device.releases.current()) == (Phase.IDLE, old, new)
    assert state.last.result == "committed"
    assert 30 <= service.second <= 32
    ((what, release, result),) = recorded(device)
    assert (what, release, result.partition(": ")[0]) == ("trial", new, "committed")


def test_without_a_trial_it_ends_at_once(device):
    serving(device)

    def never(*_):
        raise AssertionError("looked at something")

    assert run_trial(device, FakeUnits(), Trial(observe=never, wait=never)) == 0


def crash(service):
    service.unit = replace(service.unit, active="activating", sub="auto-restart", result="exit-code")


def hang(service):
    service.is_silent = True


@pytest.mark.parametrize(
    ("fault", "second", "says", "within"),
    [
        (crash, 0, "started again", 1),
        (crash, 25, "started again: exit-code", 26),
        (hang, 0, "", 61),
        (hang, 15, "", 61),
    ],
    ids=["crash-at-start", "crash-later", "never-ready", "hang"],
)
def test_f21_a_bad_release_is_refused_in_time_and_the_old_one_comes_back(device, switched, fault, second, says, within):
    old, new, service = switched
    if second:
        service.at[second] = lambda: fault(service)
    else:
        fault(service)

    assert verdict_of(device, service) == REFUSED

    assert service.second <= within
    assert says in device.state().reason
    assert device.releases.current() == new  # the trial only judges
    way = go_back(device, FakeUnits(RUNTIME_UNIT), "unit-failed")
    assert (way.release, device.releases.current(), device.state().phase) == (old, old, Phase.IDLE)
    assert device.state().last.result == "rolled-back"
    assert says in device.state().last.reason


SAME = {"files": {"model.onnx": (Role.MODEL, b"m1"), "pipeline.yaml": (Role.PIPELINE, b"p")}}
OTHER_PIPELINE = {"files": {**SAME["files"], "pipeline.yaml": (Role.PIPELINE, b"q")}}
OTHER_MODEL = {"files": {**SAME["files"], "model.onnx": (Role.MODEL, b"m2")}}


@pytest.mark.parametrize(
    ("asks", "fps", "odd", "is_taken"),
    [
        ({"max_fps": {"east": 2}}, 2.0, {}, True),
        ({"max_fps": {"east": 2}}, 1.0, {}, False),
        ({"max_fps": {"east": 30}}, 2.0, {}, False),
        ({"max_fps": {"west": 2}}, 2.0, {}, False),
        (SAME, 10.0, {"infer_p95_ms": 60.0}, False),
        (OTHER_MODEL, 10.0, {"infer_p95_ms": 60.0}, True),
        (OTHER_PIPELINE, 10.0, {"infer_p95_ms": 60.0}, True),
        ({**SAME, "engine": {"precision": "fp32"}}, 10.0, {"infer_p95_ms": 60.0}, True),
        (SAME, 10.0, {"mqtt_acknowledged": 1}, False),
        (OTHER_PIPELINE, 10.0, {"mqtt_acknowledged": 1}, True),
        (OTHER_PIPELINE, 10.0, {"mqtt_acknowledged": 0}, False),
    ],
)
def test_a_release_is_not_refused_for_what_it_changes_on_purpose(device, put_new_on_trial, asks, fps, odd, is_taken):
    _, _, service = put_new_on_trial(asks=asks)
    service.fps, service.odd = fps, odd

    assert verdict_of(device, service) == (0 if is_taken else REFUSED)


def test_f22_a_camera_and_a_broker_that_were_down_before_are_not_blamed(device, caplog, put_new_on_trial):
    down = {"streams": {"east": 0.0}, "infer_p95_ms": None, "mqtt_connected": False}
    _, _, service = put_new_on_trial(baseline=down)
    service.fps, service.mqtt = 0.0, False

    assert verdict_of(device, service) == 0

    assert "stream east: no frames" in caplog.text
    assert "broker is not connected" in caplog.text


def test_what_a_trial_waits_for_can_be_read_while_it_waits_and_not_afterwards(device, switched):
    _, _, service = switched
    read = lambda: read_progress(device.layout.trial_progress)  # noqa: E731
    said = {}
    service.mqtt = False
    service.at |= {second: lambda second=second: said.update({second: read()}) for second in (15, 30)}
    service.at[16] = lambda: setattr(service, "mqtt", True)

    assert verdict_of(device, service) == 0
    assert "broker is not connected" in said[15]
    assert (said[30], read()) == ("", "")


def test_a_release_that_waits_for_a_person_is_committed_when_confirmed(device, put_new_on_trial):
    _, new, service = put_new_on_trial(confirm=True)
    service.at[45] = lambda: confirm(device, new)

    assert verdict_of(device, service) == 0
    assert 45 <= service.second <= 46


def test_a_reason_whose_number_changes_each_second_is_told_once(device, put_new_on_trial, caplog):
    _, _, service = put_new_on_trial(asks=SAME)
    healthy = service._health
    service._health = lambda: replace(healthy(), infer_p95_ms=90.0 + service.second)
    said = {}
    service.at[40] = lambda: said.update({40: read_progress(device.layout.trial_progress)})

    assert verdict_of(device, service) == REFUSED
    assert len([line for line in logged(caplog).splitlines() if "verdict=wait reason=inference" in line]) == 1
    assert "inference takes 120.0 ms" in said[40]  # of second 30


def test_a_release_that_nobody_confirms_is_refused_at_the_deadline(device, put_new_on_trial):
    _, _, service = put_new_on_trial(confirm=True)

    assert verdict_of(device, service) == REFUSED
    assert 60 <= service.second <= 61
    assert "nobody has confirmed" in device.state().reason


def test_a_trial_that_was_refused_before_is_not_judged_again(device, switched):
    _, _, service = switched
    crash(service)
    verdict_of(device, service)

    assert verdict_of(device, Service(device, "x", started_ns=0)) == REFUSED


def test_a_trial_that_somebody_ended_by_hand_has_no_verdict(device, switched):
    old, _, service = switched
    service.at[5] = lambda: roll_back(device, "asked for", moment=this_moment(), by_person=True)

    assert verdict_of(device, service) == 0
    assert device.releases.current() == old


def test_a_runtime_that_has_not_failed_is_left_alone(device):
    release = serving(device)

    way = go_back(device, FakeUnits(RUNTIME_UNIT), "unit-failed")

    assert (way.release, way.note) == (release, "nothing has failed")
    assert device.state().attempts == 0
    assert recorded(device) == []


def test_a_release_on_trial_is_not_undone_because_the_one_before_had_to_be_killed(device, switched):
    _, new, _ = switched
    units = FakeUnits(RUNTIME_UNIT)  # systemd calls for the way back, and has started the new one already
    units.states[RUNTIME_UNIT] = UnitState(active="activating", sub="start")

    assert not is_needed(device, units)
    way = go_back(device, units, "unit-failed")

    assert (way.release, way.note) == (new, "nothing has failed")
    assert (device.releases.current(), device.state().phase) == (new, Phase.TRIAL)


@pytest.mark.parametrize(
    ("ended", "is_failure"),
    [
        (UnitState(active="failed", sub="failed", result="signal", exit_status=9), True),
        (UnitState(active="failed", sub="failed", result="timeout", exit_status=0), True),
        (UnitState(active="failed", sub="failed", result="exit-code", exit_status=REFUSED), False),
        (UnitState(active="inactive", sub="dead"), False),
        (UnitState(active="activating", sub="start"), False),
    ],
    ids=["killed", "too long", "refused another release before", "not begun", "at work"],
)
def test_a_trial_that_died_has_failed_and_one_of_an_earlier_release_has_not(device, switched, ended, is_failure):
    old, new, _ = switched
    units = FakeUnits(RUNTIME_UNIT, TRIAL_UNIT)
    units.states[TRIAL_UNIT] = ended

    assert is_needed(device, units) == is_failure
    assert go_back(device, units, "unit-failed").release == (old if is_failure else new)


def test_a_way_back_is_needed_where_nothing_can_be_known(device, switched):
    device.layout.state.write_text("{")

    assert is_needed(device, FakeUnits(RUNTIME_UNIT))


def test_a_proven_release_that_fails_goes_back_to_the_one_before(device, two):
    old, _ = two

    way = go_back(device, failed_units(), "unit-failed")

    assert way.release == device.releases.current() == old


def test_f23_with_a_broken_fallback_a_person_is_asked_and_nothing_loops(device, switched):
    old, _, service = switched
    flip(device.layout.release(old) / "model.onnx")
    crash(service)
    assert verdict_of(device, service) == REFUSED

    for _ in range(3):
        caught = error_of(go_back, device, failed_units(), "unit-failed")
        assert (caught.code, caught.exit_code) == ("person.failed", 9)
    assert device.state().phase is Phase.FAILED


def test_f23_the_only_release_is_tried_a_few_times_and_not_for_ever(device):
    release = serving(device)
    for _ in range(MAX_ATTEMPTS_PER_BOOT):
        assert go_back(device, failed_units(), "unit-failed").release == release

    error = error_of(go_back, device, failed_units(), "unit-failed")

    assert error.exit_code == 9
    assert [what for what, _, _ in recorded(device)] == ["rollback"] * (MAX_ATTEMPTS_PER_BOOT + 1)
    assert recorded(device)[-1] == ("rollback", release, f"person.failed: {error.problem}")


def other_system(device, release):
    """The release's engine as another version of OpenVINO has built it."""
    return attach_engine(device, release, versions={"openvino": "1.0", "architecture": "x"})


def test_f24_after_an_upgrade_the_same_release_is_built_anew_rather_than_an_older_one_served(device, two):
    _, new = two
    other_system(device, new)

    go_back(device, failed_units(), "unit-failed")

    assert device.releases.current() == new
    assert json.loads(device.layout.build_request.read_text())["release"] == new
    assert device.state().attempts == 1


def test_f24_a_build_that_has_failed_is_not_asked_for_again(device, two):
    old, new = two
    other_system(device, new)
    failed = BuildResult(release=new, problem=Problem(code="build.failed", problem="why"))
    device.layout.build_result.write_bytes(failed.encode())

    assert go_back(device, failed_units(), "unit-failed").release == old


def test_f24_an_engine_of_an_older_edge_deploy_that_the_service_refuses_is_built_anew_but_not_for_ever(device, two):
    old, new = two
    record = device.layout.engine(device.releases.engine_key(new)) / "build.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "software": "0.0.1"}))
    units = failed_units(78)

    assert [go_back(device, units, "unit-failed").release for _ in range(2)] == [new, new]
    assert read_request(device.layout.build_request).release == new
    assert go_back(device, units, "unit-failed").release == old


def test_f15_a_damaged_plan_is_put_aside_and_built_anew(device):
    release = serving(device)
    key = device.releases.engine_key(release)
    flip(device.layout.engine(key) / "model.plan")

    go_back(device, failed_units(), "unit-failed")

    assert read_request(device.layout.build_request).release == release
    assert not device.engines.has(key)


def test_f15_a_damaged_blob_is_put_aside_so_that_the_next_push_sends_it_again(device, two):
    old, new = two
    sha256 = device.releases.blobs(new)["model.onnx"]
    flip(device.layout.blob(sha256))

    assert go_back(device, failed_units(), "unit-failed").release == old
    assert device.store.missing({sha256: 2}) == {sha256: 0}


def test_a_service_that_failed_before_its_trial_began_is_the_reason_that_is_kept(device, two):
    _, new = two
    put_on_trial(device, new)

    go_back(device, failed_units(), "unit-failed")

    assert device.state().last.reason.startswith("unit-failed: failed, ")


LACKING = replace(failed_units(69).states[RUNTIME_UNIT], failure="credential 'cam' is not here")


def lacking_units():
    units = failed_units()
    units.states[RUNTIME_UNIT] = LACKING
    return units


def test_a_release_that_cannot_start_for_a_lack_of_the_device_goes_back_and_is_not_marked_bad(device, switched):
    old, new, service = switched
    service.unit = LACKING

    assert verdict_of(device, service) == REFUSED
    assert go_back(device, failed_units(), "unit-failed").release == old

    last = device.state().last
    assert (last.release, last.result) == (new, "rolled-back")
    assert last.reason.startswith("trial.lacking: ")
    assert last.reason.endswith("credential 'cam' is not here")
    assert read_bad(device.layout, device.durable.files) == {}


def test_what_the_device_lacks_is_seen_before_a_trial_begins_too(device, switched):
    old, _, _ = switched

    assert go_back(device, lacking_units(), "unit-failed").release == old
    assert device.state().last.reason.startswith("trial.lacking: ")
    assert read_bad(device.layout, device.durable.files) == {}


def test_a_power_cut_before_the_way_back_does_not_blame_a_release_for_what_the_device_lacks(device, switched):
    old, _, service = switched
    service.unit = LACKING
    verdict_of(device, service)

    assert recover_at_boot(device).release == old
    assert read_bad(device.layout, device.durable.files) == {}


def test_a_proven_release_that_the_device_no_longer_gives_its_secret_is_no_way_back(device, two):
    old, _ = two

    assert go_back(device, lacking_units(), "unit-failed").release == old
    assert device.state().fallback is None
    assert read_bad(device.layout, device.durable.files) == {}


def test_a_release_that_is_kept_can_be_asked_for(device, two):
    old, _ = two

    assert go_to(device, old).release == device.releases.current() == old
    assert device.state().phase is Phase.TRIAL
    assert recorded(device) == [("rollback", old, "on trial, asked for on the device")]


@pytest.mark.parametrize("name", ["f" * 12, "../../etc", ""])
def test_a_release_that_is_not_kept_cannot(device, name):
    serving(device)

    assert code_of(go_to, device, name) in ("request.rollback", "request.release")


def test_recovery_at_boot_finds_a_damaged_file_and_takes_the_release_before(device, two, later):
    old, new = two
    flip(device.layout.release(new) / "model.onnx")

    assert recover_at_boot(device, moment=later).release == device.releases.current() == old


@pytest.mark.parametrize("harm", [other_system, lambda device, release: flip(plan_of(device, release))])
def test_f24_recovery_keeps_a_release_whose_engine_can_be_built_anew(device, two, harm, later):
    _, new = two
    harm(device, new)

    assert recover_at_boot(device, moment=later).release == new


def plan_of(device, release):
    return device.layout.engine(device.releases.engine_key(release)) / "model.plan"


def test_recovery_with_nothing_valid_asks_for_a_person(device, later):
    release = serving(device)
    flip(device.layout.release(release) / "model.onnx")

    assert error_of(recover_at_boot, device, moment=later).exit_code == 9


def test_memory_that_is_free(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 8 kB\nMemAvailable:     1234 kB\n")

    assert available_bytes(tmp_path / "meminfo") == 1234 * 1024
    assert available_bytes(tmp_path / "absent") is None
    assert available_bytes() > 0


def test_a_refusal_and_the_way_back(device, switched):
    old, new, service = switched
    service.fps = 0.0
    assert run_trial(device, FakeUnits(RUNTIME_UNIT), service.trial()) == REFUSED
    go_back(device, FakeUnits(RUNTIME_UNIT), "unit-failed")

    refused, back = recorded(device)
    assert refused[:2] == ("trial", new)
    assert refused[2].startswith("refused: ")
    assert "stream east" in refused[2]
    assert back[:2] == ("rollback", new)
    assert back[2].startswith("went back: ")
    assert back[2].endswith(f"; {old} is current")


def test_a_boot_that_finds_all_in_order_leaves_no_line_and_one_that_mends_something_does(device, switched, later):
    _, new, _ = switched
    recover_at_boot(device, moment=later)
    assert recorded(device) == [("recover", new, "the trial begins again after a power cut")]
    recover_at_boot(device, moment=later)
    assert len(recorded(device)) == 1


def test_a_log_that_cannot_be_written_does_not_stop_the_way_back(device, switched, caplog):
    old, _, _ = switched
    device.layout.audit.mkdir()
    assert go_back(device, failed_units(), "unit-failed").release == old
    assert "audit-not-written" in logged(caplog)
