"""All files or none: what is refused, full or interrupted leaves nothing, and never a part."""

import os
import signal

import pytest

from edge.deploy.new.new import NewFile, write_new_files
from edge.errors import ConfigError


def test_all_files_are_there_with_their_rights(tmp_path):
    write_new_files(
        [NewFile(path=tmp_path / "a", content=b"1", mode=0o600), NewFile(path=tmp_path / "b", content=b"2")]
    )

    assert [(path.name, path.read_bytes()) for path in sorted(tmp_path.iterdir())] == [("a", b"1"), ("b", b"2")]
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_a_check_sees_the_content_and_its_no_leaves_nothing(tmp_path):
    def check(path):
        assert (path.parent, path.read_bytes()) == (tmp_path, b"2")
        raise ConfigError("not like this")

    with pytest.raises(ConfigError, match="not like this"):
        write_new_files(
            [NewFile(path=tmp_path / "a", content=b"1"), NewFile(path=tmp_path / "b", content=b"2", check=check)]
        )

    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path):
    with pytest.raises(ConfigError, match="no/b: cannot be written: No such file or directory; name a file"):
        write_new_files([NewFile(path=tmp_path / "a", content=b"1"), NewFile(path=tmp_path / "no/b", content=b"2")])

    assert os.listdir(tmp_path) == []


def test_an_interrupt_comes_after_the_last_file(tmp_path, monkeypatch):
    replace = type(tmp_path).replace
    monkeypatch.setattr(
        type(tmp_path), "replace", lambda self, to: (signal.raise_signal(signal.SIGINT), replace(self, to))[1]
    )

    with pytest.raises(KeyboardInterrupt):
        write_new_files([NewFile(path=tmp_path / name, content=b"1") for name in "ab"])

    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
