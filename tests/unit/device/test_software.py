"""Software that releases brought: what has its name is whole, also after a cut; a release keeps what it is bound to."""

from pathlib import Path

import pytest

from edge.device.durable import temporary
from edge.errors import DeployError
from tests.support.cut_files import CutFiles
from tests.support.pushes import device_over, prepare
from tests.support.scenarios import BARE, NEW, after

KEY, OTHER = "a" * 64, "b" * 64
FILES = {"edge/__init__.py": b"one", "edge/cli/entry.py": b"two", "edge.dist-info/METADATA": b"three"}
HOME = Path("/var/lib/edge-software")


@pytest.fixture
def files():
    made = CutFiles(BARE)
    made.make_dir(HOME)
    made.sync_dir(HOME.parent)
    return made


@pytest.fixture
def software(files):
    return device_over(files).software


def install(software, key=KEY, files=FILES, beside="/opt/edge-1"):
    software.install(key, beside=beside, files=files.items(), program=b"run")


def content_of(tree, folder=HOME / KEY):
    return {path.removeprefix(f"{folder}/"): what for path, what in tree if path.startswith(f"{folder}/")}


def whole(beside=b"/opt/edge-1", files=FILES):
    folders = {f"lib/{parent}" for path in files for parent in Path(path).parents if parent.name}
    return {
        **{f"lib/{path}": content for path, content in files.items()},
        **dict.fromkeys(folders | {"lib"}),
        "edge-runtime": b"run",
        "beside": beside,
    }


def test_software_that_was_installed_is_whole_after_any_cut(software, files):
    found = []
    files.on_step = lambda files: found.extend(files.trees_after_cut())

    install(software)

    assert found
    assert all(content_of(tree) in ({}, whole()) for tree in found)
    assert all(content_of(tree) == whole() for tree in files.trees_after_cut())
    assert (software.names(), software.beside(KEY), software.beside(OTHER)) == ([KEY], "/opt/edge-1", None)


def test_what_a_cut_left_half_made_is_in_nobodys_way(software, files):
    partial = temporary(HOME / KEY)
    files.make_dir(partial)
    files.write(partial / "edge-runtime", b"half")

    install(software)

    assert content_of(files.tree()) == whole()
    assert not content_of(files.tree(), partial)


def test_what_is_half_made_goes_and_the_rest_stays(software, files):
    install(software)
    for name in (f".{OTHER}.tmp", ".other.tmp"):
        files.make_dir(HOME / name)
    files.write(HOME / ".said.json.tmp", b"half")
    files.symlink(HOME / ".proven.tmp", KEY)

    software.clear()

    assert files.names(HOME) == [KEY]


def test_the_agent_is_one_or_the_other_after_any_cut(software, files):
    install(software)
    install(software, OTHER)
    software.prove(KEY)
    found = []
    files.on_step = lambda files: found.extend(files.trees_after_cut())

    software.prove(OTHER)

    assert {dict(tree).get(f"{HOME}/proven") for tree in found} == {KEY, OTHER}
    assert {dict(tree).get(f"{HOME}/proven") for tree in files.trees_after_cut()} == {OTHER}
    software.prove(None)
    assert {dict(tree).get(f"{HOME}/proven") for tree in files.trees_after_cut()} == {None}
    assert software.proven() is None


def test_software_is_laid_over_the_one_or_the_other_after_any_cut(software, files):
    install(software)
    found = []
    files.on_step = lambda files: found.extend(files.trees_after_cut())

    software.lay_over(KEY, beside="/opt/edge-2")

    assert {content_of(tree)["beside"] for tree in found} == {b"/opt/edge-1", b"/opt/edge-2"}
    assert all(content_of(tree) == whole(b"/opt/edge-2") for tree in files.trees_after_cut())


def test_software_that_is_removed_never_has_its_name_in_part(software, files):
    install(software)
    found = []
    files.on_step = lambda files: found.extend(files.trees_after_cut())

    software.remove(KEY)

    assert all(content_of(tree) in ({}, whole()) for tree in found)
    assert software.names() == []


@pytest.mark.parametrize("key", ["", "a" * 63, "A" * 64, "../" + "a" * 61])
def test_what_is_no_key_becomes_no_file_name(software, key):
    with pytest.raises(DeployError, match="no SHA-256"):
        install(software, key)


def test_a_release_is_bound_to_the_one_or_the_other_after_any_cut_and_its_files_are_its_own():
    files = CutFiles(after(lambda device: prepare(device, NEW)))
    device, link = device_over(files), f"/var/lib/edge-deploy/releases/{NEW.name}/software"
    blobs = device.releases.blobs(NEW.name)
    found = []
    files.on_step = lambda files: found.extend(files.trees_after_cut())

    device.releases.attach_software(NEW.name, KEY)

    assert {dict(tree).get(link) for tree in found} <= {None, f"../../../edge-software/{KEY}"}
    assert {dict(tree).get(link) for tree in files.trees_after_cut()} == {f"../../../edge-software/{KEY}"}
    assert device.releases.software_key(NEW.name) == KEY
    assert device.releases.blobs(NEW.name) == blobs
    assert device.releases.is_complete(NEW.name)
    assert device.releases.is_ready(NEW.name)
