"""Each operation of `Durable`, and the power that goes: after its return nothing but the new, on its way old or new."""

import contextlib
from pathlib import Path

import pytest

from edge.device.durable import Durable, temporary
from tests.support.cut_files import CutFiles

DISK = (
    ("/var", None),
    ("/var/log", b"one\n"),
    ("/var/made", None),
    ("/var/made/engine", b"plan"),
    ("/var/made/inner", None),
    ("/var/made/inner/golden", b"golden"),
    ("/var/state", b"old"),
)
VAR = Path("/var")


class Killed(BaseException):
    """The process ends here; the machine runs on."""


def below(tree, path):
    return {name: what for name, what in tree if name == str(path) or name.startswith(f"{path}/")}


def trees_of(operation):
    """Return the disks that a cut can leave while the operation runs, and those after its return."""
    files, on_the_way = CutFiles(DISK), []
    files.on_step = lambda files: on_the_way.extend(files.trees_after_cut())
    operation(Durable(files))
    return [dict(tree) for tree in on_the_way], [dict(tree) for tree in files.trees_after_cut()]


def left_by_a_killed_one(operation):
    """Return files in which the operation was killed before its last sync of a folder."""
    syncs = []
    counting = CutFiles(DISK)
    counting.sync_dir = lambda path: (syncs.append(path), CutFiles.sync_dir(counting, path))
    operation(Durable(counting))
    files, left = CutFiles(DISK), [len(syncs) - 1]

    def sync_dir(path):
        if not left[0]:
            raise Killed
        left[0] -= 1
        CutFiles.sync_dir(files, path)

    files.sync_dir = sync_dir
    with contextlib.suppress(Killed):
        operation(Durable(files))
        raise AssertionError("nothing was killed")
    del files.sync_dir
    return files


def test_a_file_that_is_removed_is_gone():
    _, after = trees_of(lambda durable: durable.remove(VAR / "state"))
    assert not any("/var/state" in tree for tree in after)


def test_a_folder_that_is_removed_is_whole_or_has_lost_its_name():
    whole = below(DISK, "/var/made")
    on_the_way, after = trees_of(lambda durable: durable.remove_tree(VAR / "made"))
    assert all(below(tree.items(), "/var/made") in ({}, whole) for tree in on_the_way)
    assert not any(below(tree.items(), "/var/made") for tree in after)


def test_a_grave_that_may_have_its_old_name_on_the_disk_is_settled_before_it_is_cleared():
    files = CutFiles(DISK)
    files.rename(VAR / "made", temporary(VAR / "made"))  # and killed, before its sync
    whole = below(DISK, "/var/made")
    found = []
    files.on_step = lambda files: found.extend(files.trees_after_cut())

    Durable(files).remove_tree(temporary(VAR / "made"))

    assert all(below(tree, "/var/made") in ({}, whole) for tree in found)


def test_a_folder_is_removed_where_a_grave_was_left():
    files = CutFiles((*DISK, ("/var/.made.tmp", None), ("/var/.made.tmp/old", b"rest")))
    Durable(files).remove_tree(VAR / "made")
    assert not [path for path, _ in files.tree() if "made" in path]


def test_folders_that_are_made_are_there_with_those_above_them():
    _, after = trees_of(lambda durable: durable.make_dirs(VAR / "a/b/c"))
    assert all({"/var/a", "/var/a/b", "/var/a/b/c"} <= tree.keys() for tree in after)


@pytest.mark.parametrize("found", ["a", "a/b", "a/b/c"])
def test_folders_that_a_killed_process_made_are_there_once_somebody_relies_on_them(found):
    files = left_by_a_killed_one(lambda durable: durable.make_dirs(VAR / found))
    Durable(files).make_dirs(VAR / "a/b/c")
    assert all({"/var/a", "/var/a/b", "/var/a/b/c"} <= dict(tree).keys() for tree in files.trees_after_cut())


@pytest.mark.parametrize("path", ["/var/log", "/var/fresh"])
def test_a_line_that_was_added_is_there_with_those_before_it(path):
    before = dict(DISK).get(path, b"")
    on_the_way, after = trees_of(lambda durable: durable.append_line(Path(path), b"two"))
    assert all(tree.get(path, b"").startswith(before) for tree in on_the_way)
    assert {tree.get(path) for tree in after} == {before + b"two\n"}


def test_what_was_found_is_durable_once_it_is_settled():
    files = left_by_a_killed_one(lambda durable: durable.put(VAR / "state", b"new"))
    assert {dict(tree)["/var/state"] for tree in files.trees_after_cut()} == {b"old", b"new"}
    Durable(files).settle(VAR / "state")
    assert {dict(tree)["/var/state"] for tree in files.trees_after_cut()} == {b"new"}


def test_nothing_is_settled_where_there_is_no_folder():
    Durable(CutFiles(DISK)).settle(VAR / "nowhere/thing")
