"""What a killed process has named and not synced is on the disk once a release stands on it, and never after that."""

from pathlib import Path

import pytest

from edge.device.durable import temporary
from edge.device.layout import Layout
from tests.support.crash import VAR, is_whole, is_whole_at
from tests.support.cut_files import CutFiles
from tests.support.pushes import device_over, prepare, receive
from tests.support.scenarios import NEW, after

LAYOUT = Layout(Path("/"))
RELEASE, ENGINE, LINK = LAYOUT.release(NEW.name), LAYOUT.engine(NEW.key), LAYOUT.release(NEW.name) / "engine"
BLOBS = [LAYOUT.blob(sha256) for sha256 in NEW.digests.values()]
RECEIVED = after(lambda device: receive(device, NEW))
PREPARED = after(lambda device: prepare(device, NEW))
NOT_ATTACHED = tuple(one for one in PREPARED if one[0] != str(LINK))


def only_named(tree, *paths):
    """Return files that look like `tree`, in which the names of `paths` are not on the disk yet; all else is."""
    files = CutFiles(tuple(sorted((str(_before(Path(name), paths)), what) for name, what in tree)))
    for path in sorted(paths):  # a folder before what lies in it
        files.rename(temporary(path), path)
    return files


def _before(path, renamed):
    if path == path.parent:
        return path
    here = _before(path.parent, renamed) / path.name
    return temporary(here) if path in renamed else here


def disks(files):
    """Return what the disk may hold if the power goes now."""
    return [dict(tree) for tree in files.trees_after_cut()]


def stage(device):
    device.releases.stage(NEW.name, manifest=NEW.manifest, signature=NEW.signature, files=NEW.digests)


def test_a_disk_without_a_name_that_was_not_synced_is_one_that_a_cut_may_leave():
    assert CutFiles(PREPARED).tree() == only_named(PREPARED, RELEASE, LINK, ENGINE, *BLOBS).tree()
    found = [is_whole(disk, NEW) for disk in disks(only_named(PREPARED, ENGINE))]
    assert sorted(found) == [False, True]


def test_a_release_is_staged_on_blobs_that_a_killed_push_has_brought():
    files = only_named(RECEIVED, *BLOBS)
    stage(device_over(files))
    assert all(is_whole_at(disk, str(RELEASE), NEW) for disk in disks(files))


def test_a_release_that_a_killed_push_has_staged_is_there_once_it_is_staged_again():
    files = only_named(PREPARED, RELEASE)
    stage(device_over(files))
    assert all(is_whole_at(disk, str(RELEASE), NEW) for disk in disks(files))


def test_an_engine_that_a_killed_push_has_admitted_is_there_before_a_release_says_that_it_is_its_own():
    files, on_the_way = only_named(NOT_ATTACHED, ENGINE), []
    files.on_step = lambda files: on_the_way.extend(disks(files))
    device_over(files).releases.attach_engine(NEW.name, NEW.key)
    linked = [disk for disk in (*on_the_way, *disks(files)) if str(LINK) in disk]
    assert linked
    assert all(disk[str(LINK)] == f"../../engines/{NEW.key}" for disk in linked)
    assert all(is_whole_at(disk, f"{VAR}/engines/{NEW.key}", NEW) for disk in linked)
    assert all(is_whole(disk, NEW) for disk in disks(files))


@pytest.mark.parametrize("name", [RELEASE, ENGINE, LINK, *BLOBS, BLOBS[0].parent], ids=str)
def test_whatever_a_killed_push_has_named_of_a_release_is_there_once_it_is_settled(name):
    files = only_named(PREPARED, name)
    device_over(files).releases.settle(NEW.name)
    assert all(is_whole(disk, NEW) for disk in disks(files))


def test_a_release_of_which_nothing_is_on_the_disk_is_there_once_it_is_settled():
    files = only_named(PREPARED, RELEASE, LINK, ENGINE, *BLOBS)
    device_over(files).releases.settle(NEW.name)
    assert all(is_whole(disk, NEW) for disk in disks(files))
