"""Releases and engines on a real disk."""

import os

import pytest

from edge.device.device import Device
from edge.device.layout import Layout
from tests.support.pushes import Release, receive
from tests.support.raised import code_of
from tests.support.scenarios import NEW, OLD

NESTED = Release("d" * 12, 7, {"pipeline.yaml": b"p", "clips/one.mp4": b"clip", "golden/a/b.png": b"picture"})


@pytest.fixture
def device(tmp_path):
    device = Device(Layout(tmp_path))
    for release in (OLD, NEW, NESTED):
        receive(device, release)
    return device


def stage(device, release):
    device.releases.stage(release.name, manifest=release.manifest, signature=release.signature, files=release.digests)


def test_a_staged_release_reads_like_a_folder_of_files(device):
    stage(device, NESTED)
    folder = device.layout.release(NESTED.name)
    assert (folder / "clips/one.mp4").read_bytes() == b"clip"
    assert (folder / "golden/a/b.png").read_bytes() == b"picture"
    assert os.readlink(folder / "golden/a/b.png").startswith("../../../../store/sha256/")
    assert device.releases.manifest(NESTED.name) == NESTED.manifest
    assert device.releases.signature(NESTED.name) == NESTED.signature
    assert device.releases.blobs(NESTED.name) == NESTED.digests
    assert device.releases.sequence(NESTED.name) == 7


def test_a_release_is_complete_with_its_blobs_and_ready_with_its_engine(device):
    stage(device, OLD)
    assert device.releases.is_complete(OLD.name)
    assert not device.releases.is_ready(OLD.name)
    device.releases.attach_engine(OLD.name, OLD.key)
    assert not device.releases.is_ready(OLD.name), "its engine has not been built"
    device.engines.take(OLD.key, {"model.plan": b"plan"}, replaces=False)
    assert device.releases.is_ready(OLD.name)
    assert device.releases.engine_key(OLD.name) == OLD.key
    device.store.quarantine(OLD.digests["model.onnx"])
    assert not device.releases.is_complete(OLD.name)
    assert not device.releases.is_complete(NEW.name), "it was never staged"


def test_a_release_that_was_signed_again_is_read_as_it_was_signed_last(device):
    stage(device, OLD)
    device.releases.stage(OLD.name, manifest=b'{"sequence": 9}', signature=b"other", files=OLD.digests)
    assert device.releases.manifest(OLD.name) == b'{"sequence": 9}'
    assert device.releases.signature(OLD.name) == b"other"
    assert device.releases.sequence(OLD.name) == 9
    assert device.releases.blobs(OLD.name) == OLD.digests

    (device.layout.release(OLD.name) / "again.json").write_bytes(b'{"manifest.json": "ey')
    assert device.releases.manifest(OLD.name) == OLD.manifest, "what came first is there, and signed as well"
    stage(device, OLD)
    assert not list(device.layout.incoming.glob(".*"))


def test_what_a_cut_left_of_staging_is_no_release_and_in_nobodys_way(device):
    left = device.layout.releases / f".{OLD.name}.tmp"
    left.mkdir(parents=True)
    (left / "model.onnx").write_bytes(b"half")
    assert device.releases.names() == []
    stage(device, OLD)
    assert device.releases.names() == [OLD.name]
    assert not left.exists()


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../../x", "", ".", "a//b", "a/", "manifest.json", "engine/model.plan", "a\0b"]
)
def test_f16_a_path_that_leaves_the_release_is_refused(device, path):
    assert (
        code_of(device.releases.stage, "e" * 12, manifest=b"{}", signature=b"s", files={path: "0" * 64})
        == "request.path"
    )
    assert device.releases.names() == []


def test_f16_a_file_whose_digest_is_none_is_refused_before_anything_is_made(tmp_path):
    device = Device(Layout(tmp_path))
    assert (
        code_of(
            device.releases.stage, "e" * 12, manifest=b"{}", signature=b"s", files={"model.onnx": "../" * 20 + "etc"}
        )
        == "request.digest"
    )
    assert not device.layout.var.exists()


@pytest.mark.parametrize("name", ["..", "", "x" * 12, "a" * 11, "a" * 13, "a/b", "." * 12])
def test_f16_a_name_that_is_no_release_never_becomes_a_path(device, name):
    assert code_of(device.releases.stage, name, manifest=b"{}", signature=b"s", files={}) == "request.release"


def test_a_manifest_that_cannot_be_read_has_no_sequence(device):
    device.releases.stage("e" * 12, manifest=b"[1", signature=b"s", files={})
    assert device.releases.sequence("e" * 12) == -1
    assert device.releases.sequence("f" * 12) == -1
