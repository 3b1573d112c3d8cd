"""What holds for every `Files`: the operating system's, and the one whose power can be cut."""

import errno
from pathlib import Path

import pytest

from edge.device.durable import Files
from tests.support.cut_files import CutFiles


@pytest.fixture(params=["real", "cut"])
def place(request, tmp_path):
    """An empty folder, and the files that it is reached with."""
    if request.param == "real":
        return Files(), tmp_path
    return CutFiles((("/here", None),)), Path("/here")


def fails_with(number, call, *args):
    with pytest.raises(OSError, match=rf"^\[Errno {number}\]"):
        call(*args)


def test_a_written_file_is_read_back(place):
    files, here = place
    files.write(here / "a", b"long content")
    files.write(here / "a", b"short")
    assert files.read(here / "a") == b"short"
    assert files.read_at(here / "a", 1, 3) == b"hor"
    assert files.read_at(here / "a", 4, 3) == b"t"
    assert files.read_at(here / "a", 9, 3) == b""
    assert files.length(here / "a") == 5


def test_a_part_is_written_in_its_place(place):
    files, here = place
    files.write(here / "a", b"0123")
    files.write_at(here / "a", 2, b"abc")
    files.write_at(here / "a", 7, b"z")
    assert files.read(here / "a") == b"01abc\0\0z"
    fails_with(errno.ENOENT, files.write_at, here / "b", 0, b"x")


def test_reserved_space_does_not_make_a_file_longer(place):
    files, here = place
    files.allocate(here / "a", 5000)
    assert files.length(here / "a") == 0
    files.write_at(here / "a", 0, b"12")
    files.allocate(here / "a", 5000)
    assert files.read(here / "a") == b"12"


def test_appending_creates_and_extends(place):
    files, here = place
    files.append(here / "a", b"1\n")
    files.append(here / "a", b"2\n")
    assert files.read(here / "a") == b"1\n2\n"


def test_what_is_protected_can_still_be_read_renamed_and_removed(place):
    files, here = place
    files.write(here / "a", b"1")
    files.protect(here / "a")
    files.rename(here / "a", here / "b")
    assert files.read(here / "b") == b"1"
    files.remove(here / "b")
    assert files.names(here) == []


def test_syncing_needs_what_it_syncs(place):
    files, here = place
    files.write(here / "a", b"1")
    files.sync(here / "a")
    files.sync_dir(here)
    fails_with(errno.ENOENT, files.sync, here / "b")
    fails_with(errno.ENOENT, files.sync_dir, here / "b")
    fails_with(errno.ENOTDIR, files.sync_dir, here / "a")


def test_a_rename_replaces_a_file_or_a_link(place):
    files, here = place
    files.write(here / "a", b"new")
    files.write(here / "b", b"old")
    files.rename(here / "a", here / "b")
    assert (files.names(here), files.read(here / "b")) == (["b"], b"new")
    files.symlink(here / "l", "b")
    files.symlink(here / "m", "nowhere")
    files.rename(here / "l", here / "m")
    assert files.link_target(here / "m") == "b"
    fails_with(errno.ENOENT, files.rename, here / "a", here / "b")


def test_a_folder_is_renamed_with_what_is_in_it_but_not_over_a_full_one(place):
    files, here = place
    files.make_dir(here / "d")
    files.write(here / "d/f", b"1")
    files.rename(here / "d", here / "e")
    assert files.read(here / "e/f") == b"1"
    files.make_dir(here / "d")
    fails_with(errno.ENOTEMPTY, files.rename, here / "d", here / "e")
    files.write(here / "f", b"")
    fails_with(errno.ENOTDIR, files.rename, here / "d", here / "f")
    fails_with(errno.EISDIR, files.rename, here / "f", here / "d")


def test_a_rename_into_another_folder_leaves_the_first(place):
    files, here = place
    files.make_dir(here / "d")
    files.write(here / "a", b"1")
    files.rename(here / "a", here / "d/b")
    assert (files.names(here), files.names(here / "d")) == (["d"], ["b"])


def test_links_are_followed_where_the_contract_says_so(place):
    files, here = place
    files.make_dir(here / "d")
    files.make_dir(here / "e")
    files.write(here / "d/f", b"123")
    files.symlink(here / "e/up", "../d/f")
    files.symlink(here / "e/dir", "../d")
    files.symlink(here / "e/lost", "../nothing")
    assert files.length(here / "e/up") == 3
    assert files.read(here / "e/dir/f") == b"123"
    assert files.is_dir(here / "e/dir")
    assert files.length(here / "e/lost") is None
    assert not files.is_dir(here / "e/lost")
    assert files.link_target(here / "e/lost") == "../nothing"
    assert files.link_target(here / "d") is None
    assert files.link_target(here / "nothing") is None
    assert files.link_target(here / "nothing/at/all") is None
    fails_with(errno.EEXIST, files.symlink, here / "e/up", "x")


def test_nothing_is_written_through_a_link(place):
    files, here = place
    files.write(here / "a", b"1")
    files.symlink(here / "l", "a")
    fails_with(errno.ELOOP, files.write, here / "l", b"2")
    assert files.read(here / "a") == b"1"


def test_folders_are_created_once_and_removed_when_empty(place):
    files, here = place
    files.make_dir(here / "d")
    fails_with(errno.EEXIST, files.make_dir, here / "d")
    files.write(here / "d/f", b"")
    fails_with(errno.ENOTEMPTY, files.remove_dir, here / "d")
    files.remove(here / "d/f")
    files.remove_dir(here / "d")
    assert files.names(here) == []
    fails_with(errno.ENOENT, files.make_dir, here / "no/d")
    fails_with(errno.ENOENT, files.remove, here / "f")
    fails_with(errno.ENOENT, files.names, here / "d")


def test_lengths_and_folders_of_what_is_not_there(place):
    files, here = place
    assert files.length(here / "a") is None
    assert files.length(here) is None
    assert not files.is_dir(here / "a")
    fails_with(errno.ENOENT, files.read, here / "a")
    fails_with(errno.ENOENT, files.modified_s, here / "a")
    files.write(here / "a", b"")
    assert files.modified_s(here / "a") >= 0
