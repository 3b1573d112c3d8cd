"""Durable writes on a real disk; what a power cut makes of them is in test_power_cuts.py."""

import errno
import os
import subprocess

import pytest

from edge.device.durable import Durable, Files, disk_error
from edge.errors import DeployError
from tests.support.faults import FaultyFiles
from tests.support.raised import code_of


def test_a_put_replaces_and_leaves_nothing_beside(tmp_path):
    durable = Durable()
    durable.put(tmp_path / "a", b"1")
    durable.put(tmp_path / "a", b"2", mode=0o600)
    assert (tmp_path / "a").read_bytes() == b"2"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["a"]


def test_a_put_never_changes_the_file_that_a_reader_has_open(tmp_path):
    Durable().put(tmp_path / "a", b"old")
    with open(tmp_path / "a", "rb") as reader:
        Durable().put(tmp_path / "a", b"new")
        assert reader.read() == b"old"


def test_a_link_replaces_a_link_and_what_a_cut_left_of_one(tmp_path):
    durable = Durable()
    durable.link(tmp_path / "l", "one")
    (tmp_path / ".l.tmp").symlink_to("half")
    durable.link(tmp_path / "l", "two")
    assert os.readlink(tmp_path / "l") == "two"
    assert os.listdir(tmp_path) == ["l"]


@pytest.mark.parametrize("call", range(4))
def test_f5_a_put_that_fails_keeps_the_old_content_and_takes_its_temporary_file_away(tmp_path, call):
    Durable().put(tmp_path / "a", b"old")
    durable = Durable(FaultyFiles(Files(), at=call, number=errno.ENOSPC))
    with pytest.raises(DeployError) as failure:
        durable.put(tmp_path / "a", b"new")
    assert failure.value.code == "device.disk.space"
    assert failure.value.evidence["errno"] == "ENOSPC"
    assert os.listdir(tmp_path) == ["a"]
    # The last call is the sync of the folder: the new content is there, it is only not certain to stay.
    assert (tmp_path / "a").read_bytes() == (b"new" if call == 3 else b"old")


def test_a_folder_that_is_removed_loses_its_name_first(tmp_path):
    (tmp_path / "d/inner").mkdir(parents=True)
    (tmp_path / "d/inner/f").write_bytes(b"1")
    (tmp_path / "target").mkdir()
    (tmp_path / "target/kept").write_bytes(b"1")
    (tmp_path / "d/link").symlink_to("../target")
    durable = Durable(FaultyFiles(Files(), at=0, number=errno.EIO, which={"remove"}))
    with pytest.raises(DeployError):
        durable.remove_tree(tmp_path / "d")
    assert sorted(os.listdir(tmp_path)) == [".d.tmp", "target"]
    durable.remove_tree(tmp_path / ".d.tmp")
    assert os.listdir(tmp_path) == ["target"]
    assert (tmp_path / "target/kept").exists(), "a link in the folder was followed"


def test_a_line_after_a_torn_one_stands_alone(tmp_path):
    (tmp_path / "log").write_bytes(b"whole\nto")
    Durable().append_line(tmp_path / "log", b"next")
    Durable().append_line(tmp_path / "log", b"last\n")
    assert (tmp_path / "log").read_bytes() == b"whole\nto\nnext\nlast\n"


def test_a_read_only_disk_and_a_missing_right_have_their_codes(tmp_path):
    for number, code in [
        (errno.EROFS, "device.disk.readonly"),
        (errno.EDQUOT, "device.disk.quota"),
        (errno.EACCES, "device.disk.permission"),
        (errno.ENOENT, "device.disk.io"),
    ]:
        assert code_of(Durable(FaultyFiles(Files(), at=0, number=number)).put, tmp_path / "a", b"") == code
    assert "sudo" in disk_error(PermissionError(errno.EACCES, "Permission denied", "/a")).hint


def test_a_folder_as_deep_as_no_path_is_long_is_removed(tmp_path):
    deep = tmp_path / "d"
    deep.mkdir()
    (deep / "0.tmp").mkdir()
    (deep / "0.tmp" / "inner").mkdir()
    here = os.open(deep, os.O_RDONLY)
    for _ in range(5000):  # 5000 levels of two bytes each: PATH_MAX is 4096
        os.mkdir("x", dir_fd=here)
        inner = os.open("x", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("f", os.O_CREAT, dir_fd=here))
    os.close(here)
    try:
        Durable().remove_tree(deep)
        assert os.listdir(tmp_path) == []
    finally:
        subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)  # pytest's own clearing recurses
