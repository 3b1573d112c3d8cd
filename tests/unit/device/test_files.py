"""What the contract of `Files` does not say of the operating system's: modes, and descriptors that are given back."""

import os
import stat

import pytest

from edge.device.durable import Files

LONG = b"x" * 100_000  # no buffer keeps it back


@pytest.fixture(autouse=True)
def mask():
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_written_file_has_its_mode_whatever_the_mask_and_the_file_before(tmp_path, mode):
    Files().write(tmp_path / "new", b"content", mode=mode)
    (tmp_path / "old").touch(0o666)
    Files().write(tmp_path / "old", b"content", mode=mode)
    assert [mode_of(tmp_path / name) for name in ("new", "old")] == [mode, mode]


def test_a_log_is_read_by_its_owner_only_also_one_that_was_wider(tmp_path):
    (tmp_path / "old").touch()
    (tmp_path / "old").chmod(0o666)
    for name in ("new", "old"):
        Files().append(tmp_path / name, b"line\n")
    assert [mode_of(tmp_path / name) for name in ("new", "old")] == [0o600, 0o600]


def test_what_is_received_what_is_kept_and_folders_have_theirs(tmp_path):
    files = Files()
    files.allocate(tmp_path / "part", 10)
    assert mode_of(tmp_path / "part") == 0o600
    files.protect(tmp_path / "part")
    assert mode_of(tmp_path / "part") == 0o440
    files.make_dir(tmp_path / "folder")
    assert mode_of(tmp_path / "folder") == 0o750


@pytest.mark.parametrize("write", [lambda path: Files().write(path, LONG), lambda path: Files().append(path, LONG)])
def test_nobody_reads_what_is_written_before_the_mode_is_right(tmp_path, monkeypatch, write):
    path = tmp_path / "old"
    path.touch()
    path.chmod(0o666)
    lengths, fchmod = [], os.fchmod

    def record(descriptor, mode):
        lengths.append(os.fstat(descriptor).st_size)
        fchmod(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", record)
    write(path)
    assert lengths == [0]
    assert path.stat().st_size == len(LONG)


@pytest.mark.parametrize(
    "call",
    [
        lambda files, path: files.write(path, b"content"),
        lambda files, path: files.write_at(path, 1, b"content"),
        lambda files, path: files.allocate(path, 10),
        lambda files, path: files.append(path, b"line\n"),
        lambda files, path: files.sync(path),
        lambda files, path: files.sync_dir(path.parent),
        lambda files, path: files.read(path),
        lambda files, path: files.read_at(path, 0, 1),
    ],
    ids=["write", "write_at", "allocate", "append", "sync", "sync_dir", "read", "read_at"],
)
def test_a_call_keeps_no_file_open(tmp_path, call):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    before = sorted(os.listdir("/proc/self/fd"))
    call(Files(), path)
    assert sorted(os.listdir("/proc/self/fd")) == before
