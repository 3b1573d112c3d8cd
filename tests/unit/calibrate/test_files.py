"""Files that belong together: all of them are new, or none is."""

import os

import pytest

from edge.calibrate.files import write_all
from edge.errors import CalibrationError


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


def test_all_are_written_over_old_ones_and_where_there_was_none(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    write_all({tmp_path / "a": b"one", tmp_path / "b": b"two"})

    assert (tmp_path / "a").read_bytes() == b"one"
    assert (tmp_path / "b").read_bytes() == b"two"
    assert entries(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("order", [("old", "new", "folder"), ("folder", "new", "old"), ("new", "folder", "old")])
def test_one_that_cannot_be_put_in_place_leaves_all_as_they_were(tmp_path, order):
    (tmp_path / "old").write_bytes(b"before")
    (tmp_path / "folder").mkdir()
    number = (tmp_path / "old").stat().st_ino

    with pytest.raises(CalibrationError, match="folder: cannot be written: Is a directory"):
        write_all({tmp_path / name: b"after" for name in order})

    assert (tmp_path / "old").read_bytes() == b"before"
    assert (tmp_path / "old").stat().st_ino == number
    assert entries(tmp_path) == ["folder", "old"]


def test_one_that_cannot_be_staged_leaves_all_as_they_were(tmp_path):
    with pytest.raises(CalibrationError, match="absent/b: cannot be written: No such file or directory"):
        write_all({tmp_path / "a": b"one", tmp_path / "absent" / "b": b"two"})

    assert entries(tmp_path) == []


def test_an_old_file_comes_back_where_there_are_no_hard_links(tmp_path, monkeypatch):
    (tmp_path / "old").write_bytes(b"before")
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(os, "link", _no_hard_links)

    with pytest.raises(CalibrationError, match="folder: cannot be written"):
        write_all({tmp_path / "old": b"after", tmp_path / "folder": b"after"})

    assert (tmp_path / "old").read_bytes() == b"before"
    assert entries(tmp_path) == ["folder", "old"]


def _no_hard_links(*_, **__):
    raise PermissionError(1, "Operation not permitted")
