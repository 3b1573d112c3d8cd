"""What is repeated after a process was killed before its last sync; cuts at each step are in test_power_cuts.py."""

from contextlib import contextmanager

from edge.device.switch import arm, confirm, refuse, switch_to
from tests.support.crash import sealed
from tests.support.cut_files import CutFiles
from tests.support.pushes import device_over, moment, prepare
from tests.support.scenarios import NEW, OLD, after, on_trial, pushed

TRIAL = after(pushed(OLD), on_trial(NEW))


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
