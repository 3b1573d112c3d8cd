"""What is repeated after a process was killed before its last sync; cuts at each step are in test_power_cuts.py."""

from contextlib import contextmanager

from edge.device.recovery import recover
from edge.device.switch import arm, confirm, refuse, roll_back, switch_to
from tests.support.crash import current_of, sealed
from tests.support.cut_files import CutFiles
from tests.support.pushes import device_over, moment, prepare
from tests.support.scenarios import NEW, OLD, OTHER, after, on_trial, pushed, scenarios

TRIAL = after(pushed(OLD), on_trial(NEW))
NEWEST = next(one.start for one in scenarios() if one.name == "recovery, newest valid release")


@contextmanager
def killed_before_its_sync(files):
    """Let what is done within the block sync no folder; good for work that ends with its only one."""
    files.sync_dir = lambda path: None
    try:
        yield
    finally:
        del files.sync_dir


def to_be_confirmed(device):
    prepare(device, NEW)
    arm(device, NEW.name, moment=moment("boot-0"), confirm=True)
    switch_to(device, NEW.name)


def states_after_cut(files):
    return [sealed(dict(tree), "state.json") for tree in files.trees_after_cut()]


def disks_on_the_way(files, work):
    """Return what a cut can leave before each step of `work`, each once."""
    found = {}
    files.on_step = lambda files: found.update(dict.fromkeys(files.trees_after_cut()))
    work(device_over(files))
    return list(found)


def test_a_confirmation_whose_sync_was_never_reached_is_there_once_it_is_said_again():
    files = CutFiles(after(pushed(OLD), to_be_confirmed))
    with killed_before_its_sync(files):
        confirm(device_over(files), NEW.name)
    assert {state["confirm"] for state in states_after_cut(files)} == {True, False}
    confirm(device_over(files), NEW.name)
    assert {state["confirm"] for state in states_after_cut(files)} == {False}


def test_a_refusal_whose_sync_was_never_reached_is_there_once_it_is_said_again():
    files = CutFiles(TRIAL)
    with killed_before_its_sync(files):
        refuse(device_over(files), "no frames")
    assert {state["reason"] for state in states_after_cut(files)} == {None, "no frames"}
    refuse(device_over(files), "something later")
    assert {state["reason"] for state in states_after_cut(files)} == {"no frames"}


def test_the_newest_valid_release_is_on_trial_before_it_is_current():
    files = CutFiles(NEWEST)
    disks = disks_on_the_way(files, lambda device: recover(device, moment=moment("boot-1")))
    states = [
        sealed(dict(disk), "state.json") for disk in (*disks, files.tree()) if current_of(dict(disk)) == OTHER.name
    ]
    assert states
    assert {(state["phase"], state["target"]) for state in states} == {("trial", OTHER.name)}


def test_a_way_back_that_is_cut_is_gone_to_its_end_with_its_reason_or_has_not_begun():
    disks = disks_on_the_way(CutFiles(TRIAL), lambda device: roll_back(device, "unit-failed", moment=moment("boot-1")))
    ends = set()
    for disk in disks:
        device = device_over(CutFiles(disk))
        found = recover(device, moment=moment("boot-2"))
        last = device.state().last
        ends.add((found.release, found.is_on_trial, last.result, last.reason))
    assert ends == {(NEW.name, True, "committed", None), (OLD.name, False, "rolled-back", "unit-failed")}
