"""Engines by their key: what has its name is whole, also after a cut, and what is damaged goes."""

import pytest

from edge.device.durable import temporary
from edge.device.engines import check_key
from edge.errors import DeployError
from tests.support.cut_files import CutFiles
from tests.support.pushes import device_over
from tests.support.raised import code_of
from tests.support.scenarios import BARE

KEY = "0123456789abcdef"
FILES = {"model.plan": b"plan", "build.json": b"record"}


@pytest.fixture
def files():
    return CutFiles(BARE)


@pytest.fixture
def engines(files):
    return device_over(files).engines


@pytest.fixture
def folder(files):
    return device_over(files).layout.engine(KEY)


def content_of(tree, folder):
    return {path.removeprefix(f"{folder}/"): what for path, what in tree if path.startswith(f"{folder}/")}


@pytest.mark.parametrize("key", ["", "0123456", "0" * 65, "0123456G", "0123456A", "../01234", "01234567\n"])
def test_what_is_no_key_becomes_no_file_name(key):
    with pytest.raises(DeployError, match="no engine key") as failure:
        check_key(key)
    assert failure.value.code == "request.engine"


@pytest.mark.parametrize("key", ["01234567", "f" * 64])
def test_a_key_is_a_key(key):
    assert check_key(key) == key


def test_an_engine_that_was_taken_is_whole_after_any_cut(engines, files, folder):
    found = []
    files.on_step = lambda files: found.extend(files.trees_after_cut())
    engines.take(KEY, FILES, replaces=False)
    assert all(content_of(tree, folder) in ({}, FILES) for tree in found)
    assert all(content_of(tree, folder) == FILES for tree in files.trees_after_cut())
    assert engines.names() == [KEY]
    assert engines.has(KEY)
    assert engines.read(KEY, "model.plan") == b"plan"


@pytest.mark.parametrize(("replaces", "expected"), [(False, b"plan"), (True, b"other")])
def test_an_engine_that_is_here_stays_unless_it_is_replaced(engines, files, folder, replaces, expected):
    engines.take(KEY, FILES, replaces=False)
    engines.take(KEY, {"model.plan": b"other"}, replaces=replaces)
    assert engines.read(KEY, "model.plan") == expected
    assert not content_of(files.tree(), temporary(folder))


def test_nothing_of_one_that_was_killed_is_in_an_engine(engines, files, folder):
    files.make_dir(temporary(folder).parent)
    files.make_dir(temporary(folder))
    files.write(temporary(folder) / "half", b"of one that was killed")
    engines.take(KEY, FILES, replaces=False)
    assert content_of(files.tree(), folder) == FILES


def test_nothing_is_left_of_an_engine_that_does_not_fit_on_the_disk(engines, files, folder):
    def write(path, content, *, mode=0o644):
        CutFiles.write(files, path, content[:1], mode=mode)
        raise OSError(28, "No space left on device")

    files.write = write
    assert code_of(engines.take, KEY, FILES, replaces=False) == "device.disk.space"
    assert not [path for path, _ in files.tree() if KEY in path]


def test_a_damaged_engine_is_taken_away_for_good(engines, files, folder):
    engines.take(KEY, FILES, replaces=False)
    engines.quarantine(KEY)
    assert not engines.has(KEY)
    assert not any(content_of(tree, folder) for tree in files.trees_after_cut())


def test_a_device_without_engines_names_none(engines):
    assert engines.names() == []
