"""The table of what a power cut leaves and what the next boot makes of it, row by row."""

import errno

import pytest

from edge.device.device import Device
from edge.device.durable import Durable, Files
from edge.device.recovery import recover
from edge.device.state import Phase, Verdict, read_bad
from edge.device.switch import arm, commit, refuse, roll_back
from edge.errors import DeployError
from tests.support.faults import CHANGING, FaultyFiles
from tests.support.pushes import moment, prepare, push, switch
from tests.support.raised import code_of, error_of
from tests.support.scenarios import NEW, OLD, OTHER

NOW, NEXT, THIRD = moment("boot-1"), moment("boot-2"), moment("boot-3")


def on_trial(device):
    """Have the old release served, and the new one be on trial."""
    push(device, OLD, now=NOW)
    prepare(device, NEW)
    switch(device, NEW, now=NOW)


def marks(device):
    return {name: one.verdict for name, one in read_bad(device.layout, device.durable.files).items()}


def test_a_new_device_has_nothing_to_recover(device):
    found = recover(device, moment=NEXT)
    assert (found.release, found.is_on_trial, found.problem) == (None, False, None)


def test_row_0_idle_stays_idle(device):
    push(device, OLD, now=NOW)
    before = device.layout.state.read_bytes()
    assert recover(device, moment=NEXT).release == OLD.name
    assert device.layout.state.read_bytes() == before


def test_row_6_a_staged_release_changes_nothing(device):
    push(device, OLD, now=NOW)
    prepare(device, NEW)
    assert recover(device, moment=NEXT).release == OLD.name
    assert device.state().phase is Phase.IDLE


def test_row_9_an_armed_release_that_was_never_switched_to_is_dropped(device):
    push(device, OLD, now=NOW)
    prepare(device, NEW)
    arm(device, NEW.name, moment=NOW)
    found = recover(device, moment=NEXT)
    assert (found.release, found.is_on_trial) == (OLD.name, False)
    assert device.state().phase is Phase.IDLE
    assert marks(device) == {}


def test_row_9_while_the_push_is_still_at_it_nothing_is_dropped(device):
    push(device, OLD, now=NOW)
    prepare(device, NEW)
    arm(device, NEW.name, moment=NOW)
    assert recover(device, moment=NOW).is_on_trial
    assert device.state().target == NEW.name


def test_row_10_and_11_the_first_cut_repeats_the_trial_and_the_second_one_ends_it(device):
    on_trial(device)
    found = recover(device, moment=NEXT)
    assert (found.release, found.is_on_trial) == (NEW.name, True)
    assert (device.state().boots, device.state().boot_id) == (1, "boot-2")
    assert recover(device, moment=NEXT) == recover(device, moment=NEXT)
    assert device.state().boots == 1, "recovery counted one boot twice"
    found = recover(device, moment=THIRD)
    assert (found.release, found.is_on_trial) == (OLD.name, False)
    assert marks(device) == {NEW.name: Verdict.SUSPECT}
    assert device.state().last.reason == "power"


def test_row_10_on_a_device_without_a_fallback_the_second_cut_leaves_nothing_serving(device):
    prepare(device, NEW)
    switch(device, NEW, now=NOW)
    assert recover(device, moment=NEXT).release == NEW.name
    assert recover(device, moment=THIRD).release is None
    assert device.releases.current() is None


def test_row_12_a_committed_release_stays(device):
    on_trial(device)
    recover(device, moment=NEXT)
    commit(device, moment=NEXT)
    assert recover(device, moment=THIRD).release == NEW.name
    assert device.state().boots == 0


def test_row_r1_a_verdict_that_was_written_is_carried_out(device):
    on_trial(device)
    refuse(device, "no frames")
    found = recover(device, moment=NEXT)
    assert (found.release, found.is_on_trial) == (OLD.name, False)
    assert marks(device) == {NEW.name: Verdict.BAD}
    assert device.state().last.reason == "no frames"


def test_row_r1_a_rollback_that_was_cut_after_the_switch_is_finished(device):
    on_trial(device)
    refuse(device, "no frames")
    device.point(OLD.name)
    assert recover(device, moment=NEXT).release == OLD.name
    assert marks(device) == {NEW.name: Verdict.BAD}
    assert (device.state().last.result, device.state().last.reason) == ("rolled-back", "no frames")


def test_row_x_a_device_that_stopped_trying_still_serves_what_is_valid_after_a_reboot(device):
    push(device, OLD, now=NOW)
    for _ in range(3):
        roll_back(device, "unit-failed", moment=NOW)
    with pytest.raises(DeployError):
        roll_back(device, "unit-failed", moment=NOW)
    found = recover(device, moment=NEXT)
    assert (found.release, found.is_on_trial) == (OLD.name, False)
    assert device.state().phase is Phase.FAILED


@pytest.mark.parametrize("content", [b"", b"\0" * 300, b"{}", None], ids=["empty", "zeros", "no seal", "missing"])
def test_a_lost_state_puts_the_current_release_on_trial_again(device, content):
    push(device, OLD, now=NOW)
    if content is None:
        device.layout.state.unlink()
    else:
        device.layout.state.write_bytes(content)
    found = recover(device, moment=NEXT)
    assert (found.release, found.is_on_trial) == (OLD.name, True)
    recover(device, moment=THIRD)
    recover(device, moment=moment("boot-4"))
    assert device.releases.current() == OLD.name, "there is no other release, so cuts alone do not take it away"
    assert commit(device, moment=moment("boot-4")).fallback is None


def test_a_lost_state_with_a_release_that_fails_its_trial_needs_a_person_and_keeps_it(device):
    push(device, OLD, now=NOW)
    device.layout.state.write_bytes(b"")
    recover(device, moment=NEXT)
    assert code_of(roll_back, device, "unit-failed", moment=NEXT) == "person.failed"
    assert device.releases.current() == OLD.name


def test_a_damaged_current_release_gives_way_to_its_fallback(device):
    push(device, OLD, now=NOW)
    push(device, NEW, now=NOW)
    device.engines.quarantine(NEW.key)
    found = recover(device, moment=NEXT)
    assert (found.release, found.is_on_trial) == (OLD.name, False)
    assert marks(device) == {NEW.name: Verdict.SUSPECT}


def test_without_a_fallback_the_newest_valid_release_by_sequence_goes_on_trial(device):
    push(device, OLD, now=NOW)
    for release in (NEW, OTHER):
        prepare(device, release)
    device.engines.quarantine(OLD.key)
    found = recover(device, moment=NEXT)
    assert (found.release, found.is_on_trial) == (OTHER.name, True)
    assert device.releases.current() == OTHER.name
    state = device.state()
    assert (state.phase, state.target, state.fallback, state.boot_id) == (
        Phase.TRIAL,
        OTHER.name,
        OTHER.name,
        "boot-2",
    )


def test_with_nothing_valid_recovery_fails_and_says_that_a_person_is_needed(device):
    push(device, OLD, now=NOW)
    device.engines.quarantine(OLD.key)
    for boot in (NEXT, THIRD):
        error = error_of(recover, device, moment=boot)
        assert (error.code, error.exit_code) == ("person.failed", 9)
    assert device.state().phase is Phase.FAILED


def test_what_the_caller_finds_invalid_is_not_kept(device):
    push(device, OLD, now=NOW)
    push(device, NEW, now=NOW)
    assert recover(device, moment=NEXT, is_valid=lambda name: name == OLD.name).release == OLD.name


def test_a_read_only_disk_does_not_keep_a_valid_release_down(device):
    on_trial(device)
    disk = FaultyFiles(Files(), at=0, number=errno.EROFS, lasts=True, which=CHANGING)
    found = recover(Device(device.layout, Durable(disk)), moment=NEXT)
    assert found.release == NEW.name
    assert found.problem is not None
    assert found.problem.code == "device.disk.readonly"
