"""What is said to be removed is gone from a real disk, and what is kept is still there."""

import os

import pytest

from edge.device.device import collect, reclaimable_bytes
from edge.reports import Collected
from tests.support.pushes import moment, prepare, push
from tests.support.scenarios import OLD, OTHER


@pytest.fixture
def device(device):
    push(device, OLD, now=moment("boot-1"))
    return device


def things(device):
    """Return all that lies on the device, without its folders for blobs, which stay."""
    found = {path.relative_to(device.layout.var) for path in device.layout.var.rglob("*")}
    return {str(path) for path in found if len(path.parts) != 3 or path.parts[0] != "store"}


def test_a_release_that_nothing_needs_goes_with_its_engine_and_its_blobs(device):
    before = things(device)
    prepare(device, OTHER)
    assert things(device) > before
    found = collect(device, now_s=0)
    blob = OTHER.digests["model.onnx"]
    assert found == Collected(releases=(OTHER.name,), engines=(OTHER.key,), blobs=(blob,))
    assert things(device) == before


def bytes_of(device):
    """Return the bytes of engines and blobs, as the file system has them."""
    folders = (device.layout.engines, device.layout.store)
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files)


def test_what_would_be_freed_is_known_before_and_nothing_is_changed_by_that(device):
    assert reclaimable_bytes(device) == 0
    needed = bytes_of(device)
    prepare(device, OTHER)
    before, told = things(device), reclaimable_bytes(device)

    assert told == bytes_of(device) - needed > 0
    assert reclaimable_bytes(device, keep=(OTHER.name,)) == 0
    assert things(device) == before


def test_blobs_that_the_release_which_serves_shares_with_another_one_stay(device):
    assert collect(device, now_s=0) == Collected()
    assert device.releases.is_ready(OLD.name)
    assert all(device.store.verify(sha256) for sha256 in OLD.digests.values())


def test_a_partial_blob_goes_when_nobody_has_gone_on_with_it_for_long(device):
    for name, modified_s in (("old.part", 1000), ("young.part", 1001)):
        (device.layout.incoming / name).write_bytes(b"12345")
        os.utime(device.layout.incoming / name, (modified_s, modified_s))
    assert collect(device, now_s=1000.5 + 7 * 86_400).partials == ("old.part",)
    assert os.listdir(device.layout.incoming) == ["young.part"]


def test_what_writes_that_were_killed_have_left_is_removed_and_told_wherever_it_lies(device):
    layout = device.layout
    before = things(device)
    (layout.var / ".state.json.tmp").write_bytes(b"half")
    (layout.var / ".current.tmp").symlink_to("releases/nowhere")
    (layout.releases / ".cccccccccccc.tmp/clips").mkdir(parents=True)
    (layout.releases / ".cccccccccccc.tmp/clips/one.mp4").write_bytes(b"half")
    (layout.engines / ".0123456789abcdef.tmp").symlink_to("aaaa")
    (layout.incoming / ".part.tmp").write_bytes(b"half")
    (layout.var / "not.tmp").touch()
    (layout.var / ".not").touch()

    found = collect(device, now_s=0)

    expected = [".current.tmp", ".state.json.tmp", ".cccccccccccc.tmp", ".0123456789abcdef.tmp", ".part.tmp"]
    assert found == Collected(temporaries=tuple(expected))
    assert things(device) == before | {"not.tmp", ".not"}


def test_a_folder_that_a_leftover_link_leads_to_is_not_emptied(device, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/file").touch()
    (device.layout.releases / ".dddddddddddd.tmp").symlink_to(tmp_path / "foreign")
    assert collect(device, now_s=0).temporaries == (".dddddddddddd.tmp",)
    assert os.listdir(tmp_path / "foreign") == ["file"]
    assert not (device.layout.releases / ".dddddddddddd.tmp").is_symlink()
