"""A file is there as it was or as it shall be, and nothing is left beside it."""

import errno
import os
import signal
import stat
from pathlib import Path

import pytest

from edge.writing import remedy, staged, sync_folder, write_together, write_whole


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_new_content_takes_the_place_of_the_old_one(tmp_path):
    (tmp_path / "a").write_bytes(b"old and longer")
    write_whole(tmp_path / "a", b"new")

    assert ((tmp_path / "a").read_bytes(), names(tmp_path)) == (b"new", ["a"])


def test_the_content_is_on_the_disk_before_it_has_the_name(tmp_path, monkeypatch):
    done, fsync, replace = [], os.fsync, type(tmp_path).replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append(os.fstat(descriptor).st_size), fsync(descriptor)))
    monkeypatch.setattr(type(tmp_path), "replace", lambda self, to: (done.append(to.name), replace(self, to))[1])
    write_whole(tmp_path / "a", b"new")

    assert done == [3, "a"]


@pytest.mark.parametrize("mode", [0o600, 0o666, 0o755])
def test_its_rights_are_those_asked_for_less_the_umask(tmp_path, mode):
    before = os.umask(0o022)
    try:
        write_whole(tmp_path / "a", b"", mode=mode)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode & ~0o022


def test_a_link_is_replaced_and_what_it_names_stays(tmp_path):
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "a").symlink_to("other")
    write_whole(tmp_path / "a", b"new")

    assert [(tmp_path / name).read_bytes() for name in ("a", "other")] == [b"new", b"other"]
    assert not (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, call):
    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(os if call == "fsync" else type(tmp_path), call, _disk_is_full)
    with pytest.raises(OSError, match=f"No space left.*{tmp_path}/a"):
        write_whole(tmp_path / "a", b"new")

    assert ((tmp_path / "a").read_bytes(), names(tmp_path)) == (b"old", ["a"])


@pytest.mark.parametrize("name", ["folder", ".", "absent/a", "a/b"])
def test_where_no_file_can_be_the_operating_system_says_so(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(OSError):  # noqa: PT011 - which one is the operating system's matter
        write_whole(Path(name), b"new")

    assert names(tmp_path) == ["a", "folder"]


def test_what_is_staged_goes_away_unless_it_is_renamed(tmp_path):
    with staged(tmp_path / "a", b"new") as new:
        assert (new.parent, new.read_bytes()) == (tmp_path, b"new")

    assert names(tmp_path) == []


def test_two_writers_of_one_name_do_not_meet(tmp_path):
    with staged(tmp_path / "a", b"one") as one, staged(tmp_path / "a", b"two") as two:
        one.replace(tmp_path / "a")
        assert two.read_bytes() == b"two"

    assert (tmp_path / "a").read_bytes() == b"one"


def both(tmp_path, first="a", second="b", **how):
    write_together({tmp_path / first: b"1", tmp_path / second: b"2"}, **how)


def test_all_are_written_over_old_ones_and_where_there_was_none_with_their_rights(tmp_path):
    (tmp_path / "b").write_bytes(b"old")
    both(tmp_path, closed=[tmp_path / "a"])

    assert [(path.name, path.read_bytes()) for path in sorted(tmp_path.iterdir())] == [("a", b"1"), ("b", b"2")]
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


@pytest.mark.parametrize(("name", "why"), [("folder", "Is a directory"), ("no/b", "No such file or directory")])
@pytest.mark.parametrize("is_first", [False, True])
def test_one_that_cannot_be_written_is_named_and_leaves_all_as_they_were(tmp_path, name, why, is_first):
    (tmp_path / "folder").mkdir()
    (tmp_path / "old").write_bytes(b"before")
    with pytest.raises(OSError, match=f"{why}: '{tmp_path}/{name}'"):
        both(tmp_path, *((name, "old") if is_first else ("old", name)))

    assert ((tmp_path / "old").read_bytes(), names(tmp_path)) == (b"before", ["folder", "old"])


@pytest.mark.parametrize("before", [{}, {"a": b"old a", "b": b"old b"}])
def test_a_rename_that_fails_takes_back_those_before_it(tmp_path, monkeypatch, before):
    """As where `b` is mounted into a container, or somebody else's in a folder where all may write."""
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    replace = type(tmp_path).replace

    def refusing(self, to):
        if to == tmp_path / "b":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(to))
        return replace(self, to)

    monkeypatch.setattr(type(tmp_path), "replace", refusing)
    with pytest.raises(OSError, match="busy"):
        both(tmp_path)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_check_sees_the_new_files_and_its_no_leaves_nothing(tmp_path):
    def check(new):
        assert {path: (one.parent, one.read_bytes()) for path, one in new.items()} == {
            tmp_path / "a": (tmp_path, b"1"),
            tmp_path / "b": (tmp_path, b"2"),
        }
        raise ValueError("not like this")

    with pytest.raises(ValueError, match="not like this"):
        both(tmp_path, check=check)

    assert names(tmp_path) == []


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("taken", ["a", "b"])
def test_of_two_that_replace_nothing_the_second_is_refused_and_leaves_all_as_they_were(
    tmp_path, monkeypatch, has_links, taken
):
    if not has_links:  # as on exFAT
        monkeypatch.setattr(os, "link", lambda *paths: (_ for _ in ()).throw(PermissionError(errno.EPERM, "no", paths)))

    def other(new):
        (tmp_path / taken).write_bytes(b"other")

    with pytest.raises(FileExistsError) as refused:
        both(tmp_path, is_replacing=False, check=other)
    assert refused.value.filename == str(tmp_path / taken)
    assert ((tmp_path / taken).read_bytes(), names(tmp_path)) == (b"other", [taken])

    both(tmp_path, *"cd", is_replacing=False)
    assert names(tmp_path) == sorted([taken, "c", "d"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_comes_after_the_last_file(tmp_path, monkeypatch, number):
    replace = type(tmp_path).replace
    monkeypatch.setattr(type(tmp_path), "replace", lambda self, to: (signal.raise_signal(number), replace(self, to))[1])
    before = signal.signal(number, signal.default_int_handler)

    try:
        with pytest.raises(KeyboardInterrupt):
            both(tmp_path)
    finally:
        signal.signal(number, before)

    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.ENOSPC, "make room"), (errno.EDQUOT, "make room"), (errno.EACCES, "name a file in a")]
)
def test_the_remedy_fits_the_reason(number, hint):
    assert remedy(OSError(number, os.strerror(number))).startswith(hint)


def test_a_folder_is_synced_itself(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.path.samestat(os.fstat(descriptor), here)))
    here = tmp_path.stat()
    sync_folder(tmp_path)

    assert synced == [True]


def _disk_is_full(*_):
    raise OSError(28, "No space left on device")
