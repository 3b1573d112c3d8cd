"""The switch and its ways back, with real files and real locks."""

import pytest

from edge.codec import decode, encode
from edge.device.device import Device, collect
from edge.device.layout import Layout
from edge.device.recovery import recover
from edge.device.state import Counters, Phase, Verdict, read_bad, read_counters
from edge.device.switch import MAX_ATTEMPTS_PER_BOOT, arm, commit, confirm, refuse, roll_back, switch_to
from edge.errors import DeployError
from edge.reports import LastSwitch
from tests.support.pushes import build, moment, prepare, push, switch
from tests.support.raised import code_of
from tests.support.scenarios import NEW, OLD, OTHER

NOW = moment("boot-1")


@pytest.fixture
def device(device):
    push(device, OLD, now=NOW)
    return device


def marks(device):
    return {name: one.verdict for name, one in read_bad(device.layout, device.durable.files).items()}


def test_a_release_that_is_committed_has_the_one_before_as_its_fallback(device):
    prepare(device, NEW)
    armed = arm(device, NEW.name, moment=NOW, seen=Counters(sequences={"main": 2}), baseline={"rate": 15})
    assert (armed.phase, armed.target, armed.fallback, armed.baseline) == (
        Phase.TRIAL,
        NEW.name,
        OLD.name,
        {"rate": 15},
    )
    assert device.releases.current() == OLD.name
    assert read_counters(device.layout, device.durable.files).sequences == {"main": 2}
    switch_to(device, NEW.name)
    assert device.releases.current() == NEW.name
    state = commit(device, moment=NOW)
    assert (state.phase, state.target, state.fallback) == (Phase.IDLE, None, OLD.name)
    assert state.last == LastSwitch(release=NEW.name, before=OLD.name, result="committed", reason=None, at=NOW.at)


def test_nothing_is_armed_that_is_not_whole(device):
    assert code_of(arm, device, NEW.name, moment=NOW, seen=Counters(sequences={"main": 9})) == "request.incomplete"
    assert device.state().phase is Phase.IDLE
    assert read_counters(device.layout, device.durable.files).sequences == {"main": 1}, "of what serves, since its push"


def test_nothing_is_switched_to_that_is_not_armed(device):
    prepare(device, NEW)
    assert code_of(switch_to, device, NEW.name) == "request.not-armed"
    assert device.releases.current() == OLD.name
    assert code_of(commit, device, moment=NOW) == "request.not-armed"
    assert code_of(confirm, device, NEW.name) == "request.not-armed"
    with pytest.raises(DeployError, match="expected a release on trial, got none") as failed:
        refuse(device, "why")
    assert failed.value.code == "request.not-armed"
    device.layout.current.unlink()
    with pytest.raises(DeployError, match="expected a release on trial, got none"):
        commit(device, moment=NOW)


def test_a_release_on_trial_is_not_pushed_away_but_one_that_was_only_armed_is(device):
    prepare(device, NEW)
    prepare(device, OTHER)
    arm(device, NEW.name, moment=NOW)
    assert arm(device, OTHER.name, moment=NOW).fallback == OLD.name
    switch_to(device, OTHER.name)
    assert code_of(arm, device, NEW.name, moment=NOW) == "lock.trial"


def test_a_trial_that_a_person_has_to_confirm_is_not_committed_before(device):
    prepare(device, NEW)
    arm(device, NEW.name, moment=NOW, confirm=True)
    switch_to(device, NEW.name)
    assert code_of(commit, device, moment=NOW) == "trial.unconfirmed"
    assert code_of(confirm, device, OLD.name) == "request.not-armed"
    confirm(device, NEW.name)
    confirm(device, NEW.name)
    assert commit(device, moment=NOW).last.result == "committed"


def test_a_refused_trial_cannot_be_committed_and_keeps_its_first_reason(device):
    prepare(device, NEW)
    switch(device, NEW, now=NOW)
    refuse(device, "no frames")
    refuse(device, "something later")
    assert code_of(commit, device, moment=NOW) == "trial.refused"
    release = roll_back(device, "unit-failed", moment=NOW)
    assert release == device.releases.current() == OLD.name
    assert device.state().last.reason == "no frames"
    assert marks(device) == {NEW.name: Verdict.BAD}


def test_a_release_that_is_committed_after_all_is_no_longer_marked(device):
    push(device, NEW, now=NOW, is_healthy=False)
    assert marks(device) == {NEW.name: Verdict.BAD}
    push(device, NEW, now=NOW)
    assert marks(device) == {}


def test_the_first_release_of_a_device_leaves_nothing_when_it_fails(tmp_path):
    device = Device(Layout(tmp_path))
    device.durable.make_dirs(device.layout.var)
    prepare(device, NEW)
    switch(device, NEW, now=NOW)
    assert device.state().fallback is None
    assert roll_back(device, "unit-failed", moment=NOW) is None
    assert device.releases.current() is None
    assert device.state().phase is Phase.IDLE
    assert recover(device, moment=moment("boot-2")).release is None


def test_a_person_goes_back_and_forth_between_two_proven_releases(device):
    push(device, NEW, now=NOW)
    assert roll_back(device, "asked for", moment=NOW, by_person=True) == OLD.name
    assert device.state().fallback == NEW.name
    assert marks(device) == {}
    assert roll_back(device, "asked for", moment=NOW, by_person=True) == NEW.name


def test_a_person_is_told_when_there_is_nothing_to_go_back_to(device):
    assert code_of(roll_back, device, "asked for", moment=NOW, by_person=True) == "request.fallback"


def test_a_person_is_told_why_the_release_before_may_not_be_chosen_and_what_serves_goes_on(device):
    push(device, NEW, now=NOW)
    before = device.layout.state.read_bytes()
    asked = []

    def check_trust(release):
        asked.append(release)
        raise DeployError("signature.revoked", f"release {release}: its key was revoked")

    code = code_of(roll_back, device, "asked for", moment=NOW, by_person=True, check_trust=check_trust)
    assert (code, asked) == ("signature.revoked", [OLD.name])
    assert (device.releases.current(), device.layout.state.read_bytes()) == (NEW.name, before)


def test_a_proven_release_that_cannot_start_any_more_is_suspect(device):
    push(device, NEW, now=NOW)
    assert roll_back(device, "unit-failed", moment=NOW) == OLD.name
    assert marks(device) == {NEW.name: Verdict.SUSPECT}
    assert device.state().fallback is None
    assert device.state().last.reason == "unit-failed"
    assert device.state().reason is None


def test_f23_with_a_broken_fallback_the_device_stops_trying_and_a_person_has_a_way(device):
    prepare(device, NEW)
    switch(device, NEW, now=NOW)
    device.engines.quarantine(OLD.key)
    assert code_of(roll_back, device, "unit-failed", moment=NOW) == "person.failed"
    state = device.state()
    assert (state.phase, state.last.result) == (Phase.FAILED, "failed")
    assert code_of(roll_back, device, "unit-failed", moment=NOW) == "person.failed"
    assert code_of(arm, device, NEW.name, moment=NOW) == "person.failed"
    assert arm(device, NEW.name, moment=NOW, by_force=True).phase is Phase.TRIAL


def test_f23_a_device_that_stopped_trying_goes_nowhere_by_itself_though_it_could_again(device):
    prepare(device, NEW)
    switch(device, NEW, now=NOW)
    device.engines.quarantine(OLD.key)
    assert code_of(roll_back, device, "unit-failed", moment=NOW) == "person.failed"
    before = device.layout.state.read_bytes()
    build(device, OLD)
    assert device.releases.is_ready(OLD.name)
    assert code_of(roll_back, device, "unit-failed", moment=moment("boot-2")) == "person.failed"
    assert (device.releases.current(), device.layout.state.read_bytes()) == (NEW.name, before)
    assert roll_back(device, "asked for", moment=moment("boot-2"), by_person=True) == OLD.name


def test_f23_a_release_that_never_starts_is_tried_three_times_in_a_boot_and_six_times_in_all(device):
    for _ in range(MAX_ATTEMPTS_PER_BOOT):
        assert roll_back(device, "unit-failed", moment=NOW) == OLD.name
    for boot in ("boot-2", "boot-3"):
        recover(device, moment=moment(boot))
    assert device.state().attempts == 3
    for _ in range(MAX_ATTEMPTS_PER_BOOT):
        roll_back(device, "unit-failed", moment=moment("boot-3"))
    assert code_of(roll_back, device, "unit-failed", moment=moment("boot-4")) == "person.failed"
    assert device.state().phase is Phase.FAILED
    assert device.releases.current() == OLD.name


def test_f23_four_failures_in_one_boot_are_too_many(device):
    for _ in range(MAX_ATTEMPTS_PER_BOOT):
        roll_back(device, "unit-failed", moment=NOW)
    assert code_of(roll_back, device, "unit-failed", moment=NOW) == "person.failed"
    assert roll_back(device, "asked for", moment=NOW, by_person=True) == OLD.name
    assert (device.state().phase, device.state().attempts) == (Phase.IDLE, 0)


def test_a_failure_after_an_hour_of_service_is_no_loop(device):
    for hour in range(1, 12):
        roll_back(device, "unit-failed", moment=moment("boot-1", seconds=hour * 3700))
    assert device.state().phase is Phase.IDLE


def test_an_engine_that_was_built_again_is_tried_on_the_release_that_serves(device):
    state = arm(device, OLD.name, moment=NOW)
    assert (state.target, state.fallback) == (OLD.name, OLD.name)
    switch_to(device, OLD.name)
    assert commit(device, moment=NOW).fallback is None


def test_garbage_collection_keeps_what_may_be_needed_and_removes_the_rest(device):
    push(device, NEW, now=NOW)
    prepare(device, OTHER)
    partial = device.layout.incoming / ("d" * 64 + ".part")
    partial.write_bytes(b"12345")
    assert collect(device, now_s=partial.stat().st_mtime + 1, keep=[OTHER.name]).releases == ()
    found = collect(device, now_s=partial.stat().st_mtime + 1)
    assert (found.releases, found.engines, found.partials) == ((OTHER.name,), (OTHER.key,), ())
    assert found.blobs == (OTHER.digests["model.onnx"],)
    assert device.releases.names() == [OLD.name, NEW.name]
    assert all(device.releases.is_ready(name) for name in device.releases.names())
    assert collect(device, now_s=partial.stat().st_mtime + 8 * 86400).partials == (partial.name,)


def test_f17_partial_blobs_stay_within_their_quota_the_oldest_go_first(device):
    import os

    device.durable.make_dirs(device.layout.incoming)
    for number in range(4):
        path = device.layout.incoming / f"{number:064x}.part"
        path.touch()
        os.truncate(path, 1 << 30)  # a hole of 1 GiB; of all together 2 GiB may stay
        os.utime(path, (1000 + number, 1000 + number))
    found = collect(device, now_s=1010.0)
    assert found.partials == (f"{0:064x}.part", f"{1:064x}.part")


def test_a_reason_of_any_length_and_form_can_be_kept_and_told(device):
    """A person gives one on a command line; the wire carries a bounded text, and the state has to stay readable."""
    prepare(device, NEW)
    arm(device, NEW.name, moment=NOW)
    switch_to(device, NEW.name)
    roll_back(device, "\x1b[2J" + "x" * 100_000, moment=NOW)
    last = device.state().last
    assert last.reason.startswith("?[2Jxxx")
    told = decode(LastSwitch, encode(last), where="last")
    assert told == last
