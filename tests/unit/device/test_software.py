"""Software that releases brought: what has its name is whole, also after a cut, and what is damaged is noticed."""

import errno
import hashlib
import json
from pathlib import Path

import pytest

from edge.device.software import Installation
from edge.errors import DeployError
from tests.support.cut_files import CutFiles
from tests.support.pushes import device_over
from tests.support.raised import code_of
from tests.support.scenarios import BARE

KEY, OTHER = "a" * 64, "b" * 64
ONE = Installation(key=KEY, beside="/opt/edge-1")
FILES = {"edge/__init__.py": b"one", "edge/cli/entry.py": b"two", "edge.dist-info/METADATA": b"three"}
HOME = Path("/var/lib/edge-software")
FOLDER = HOME / ONE.name


@pytest.fixture
def files():
    made = CutFiles(BARE)
    made.make_dir(HOME)
    made.sync_dir(HOME.parent)
    return made


@pytest.fixture
def software(files):
    return device_over(files).software


def install(software, one=ONE, files=FILES):
    software.install(one, ((path, (content,)) for path, content in files.items()), program=b"run")


def content_of(tree, folder=FOLDER):
    return {path.removeprefix(f"{folder}/"): what for path, what in tree if path.startswith(f"{folder}/")}


def is_whole(found, files=FILES):
    folders = {f"lib/{parent}" for path in files for parent in Path(path).parents if parent.name}
    expected = {
        **{f"lib/{path}": content for path, content in files.items()},
        **dict.fromkeys(folders | {"lib"}),
        "edge-runtime": b"run",
    }
    return {**found, "installation.json": None} == {**expected, "installation.json": None} and bool(
        found["installation.json"]
    )


def test_an_installation_has_the_name_of_the_software_and_of_what_it_is_laid_over():
    assert ONE.name == hashlib.sha256(f"{KEY}\n/opt/edge-1\n".encode()).hexdigest()
    names = {
        ONE.name,
        Installation(key=OTHER, beside=ONE.beside).name,
        Installation(key=KEY, beside="/opt/edge-2").name,
    }
    assert len(names) == 3


def test_software_that_was_installed_is_whole_after_any_cut(software, files):
    found = []
    files.on_step = lambda files: found.extend(files.trees_after_cut())

    install(software)

    assert found
    assert all(content_of(tree) == {} or is_whole(content_of(tree)) for tree in found)
    assert all(is_whole(content_of(tree)) for tree in files.trees_after_cut())
    assert (software.names(), software.problem(ONE.name), software.origin(ONE.name)) == ([ONE.name], None, ONE)
    assert software.problem(OTHER) == "is not here"
    assert software.origin(OTHER) is None


def test_what_a_cut_left_half_made_is_in_nobodys_way(software, files):
    partial = HOME / f".{ONE.name}.new.tmp"
    files.make_dir(partial)
    files.make_dir(partial / "lib")
    files.write(partial / "edge-runtime", b"half")
    files.write(partial / "lib/evil.py", b"it would be imported")

    install(software)

    assert is_whole(content_of(files.tree()))
    assert not content_of(files.tree(), partial)


@pytest.mark.parametrize("path", ["edge-runtime", "lib/edge/__init__.py", "lib/edge.dist-info/METADATA"])
def test_a_file_that_is_not_what_was_installed_is_named(software, files, path):
    install(software)
    files.write(FOLDER / path, b"0ne")

    assert software.problem(ONE.name) == f"is damaged: {path}"


@pytest.mark.parametrize("path", ["edge-runtime", "lib/edge/__init__.py", "installation.json"])
def test_a_file_that_is_gone_is_noticed(software, files, path):
    install(software)
    files.remove(FOLDER / path)

    assert software.problem(ONE.name).startswith("is damaged: ")
    assert (software.origin(ONE.name) is None) == (path == "installation.json")


@pytest.mark.parametrize("account", [b"", b"{}", b'{"files": []}', b'{"files": {}}', b'{"files": {"edge-runtime": 1}}'])
def test_an_account_that_says_nothing_vouches_for_nothing(software, files, account):
    install(software)
    files.write(FOLDER / "installation.json", account)

    assert software.problem(ONE.name).startswith("is damaged: ")


def test_what_is_installed_again_takes_the_place_of_what_was_damaged_and_is_one_or_the_other_after_any_cut(
    software, files
):
    install(software)
    for path, content in (("lib/edge/__init__.py", b"0ne"), ("lib/evil.py", b"it would be imported")):
        files.write(FOLDER / path, content)
        files.sync(FOLDER / path)
    files.sync_dir(FOLDER / "lib")
    damaged = content_of(files.tree())
    found = []
    files.on_step = lambda files: found.extend(files.trees_after_cut())

    install(software)

    assert is_whole(content_of(files.tree()))
    assert software.problem(ONE.name) is None
    assert all(content_of(tree) in ({}, damaged) or is_whole(content_of(tree)) for tree in found)
    assert files.names(HOME) == [ONE.name]


@pytest.mark.parametrize("values", [{"key": OTHER}, {"beside": "/opt/edge-2"}, {"key": "no key"}])
def test_an_account_of_another_installation_is_damage(software, files, values):
    install(software)
    account = FOLDER / "installation.json"
    files.write(account, json.dumps({**json.loads(files.read(account)), **values}).encode())

    assert software.problem(ONE.name).startswith("is damaged: ")


def test_a_full_disk_leaves_nothing_half_made(software, files, monkeypatch):
    plain, written = files.write, []

    def write(path, content, *, mode=0o640):
        written.append(path)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        plain(path, content, mode=mode)

    monkeypatch.setattr(files, "write", write)

    assert code_of(install, software) == "device.disk.space"
    assert files.names(HOME) == []


def test_what_is_half_made_goes_and_the_rest_stays(software, files):
    install(software)
    software.vouch(KEY)
    for name in (f".{OTHER}.tmp", ".other.tmp"):
        files.make_dir(HOME / name)
    files.write(HOME / ".said.json.tmp", b"half")
    files.write(HOME / "vouched" / f".{OTHER}.tmp", b"")

    software.clear()

    assert files.names(HOME) == sorted([ONE.name, "vouched"])
    assert files.names(HOME / "vouched") == [KEY]


def test_a_note_that_software_was_trusted_is_there_or_not_after_any_cut(software, files):
    software.vouch(OTHER)
    found = []
    files.on_step = lambda files: found.extend(files.trees_after_cut())

    software.vouch(KEY)
    software.forget(OTHER)

    kept = [{path for path, _ in tree if path.startswith(f"{HOME}/vouched/")} for tree in found]
    assert all(f"{HOME}/vouched/{name}" in one for one in kept[:1] for name in (OTHER,))
    assert {
        frozenset(path for path, _ in tree if path.startswith(f"{HOME}/vouched/")) for tree in files.trees_after_cut()
    } == {frozenset({f"{HOME}/vouched/{KEY}"})}
    assert software.vouched() == [KEY]


def test_software_that_is_removed_never_has_its_name_in_part(software, files):
    install(software)
    found = []
    files.on_step = lambda files: found.extend(files.trees_after_cut())

    software.remove(ONE.name)

    assert all(content_of(tree) == {} or is_whole(content_of(tree)) for tree in found)
    assert software.names() == []


@pytest.mark.parametrize("key", ["", "a" * 63, "A" * 64, "../" + "a" * 61])
def test_what_is_no_key_becomes_no_file_name(software, key):
    with pytest.raises(DeployError, match="no SHA-256"):
        install(software, Installation(key=key, beside="/opt/edge-1"))
    with pytest.raises(DeployError, match="no SHA-256"):
        software.problem(key)
