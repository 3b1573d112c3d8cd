"""A bundle on disk: whole or absent, and nothing in it is believed that the manifest does not say."""

import os

import pytest

from edge.bundle.folder import open_bundle, require_writable, write_bundle
from edge.bundle.manifest import Role, encode_manifest
from edge.errors import DeployError
from tests.support.manifests import bundled, manifest
from tests.support.raised import code_of, error_of

FILES = {"model.onnx": b"model", "pipeline.yaml": b"version: 1\n"}


def release(**changes):
    files = (bundled("model.onnx", Role.MODEL, b"model"), bundled("pipeline.yaml", Role.PIPELINE, b"version: 1\n"))
    return manifest(**{"files": files, **changes})


def write(folder, made=None, files=FILES):
    made = made or release()
    return write_bundle(folder, made, manifest_bytes=encode_manifest(made), signature=b"sig", files=files)


def test_what_is_written_is_opened_again(tmp_path):
    source = tmp_path / "source.onnx"
    source.write_bytes(b"model")

    made = write(tmp_path / "out", files={**FILES, "model.onnx": source})
    opened = open_bundle(made.path)

    assert made.path.name == f"gates-{release().release}.bundle"
    assert opened.manifest == release()
    assert opened.signature == b"sig"
    assert [opened.path_of(file).read_bytes() for file in opened.manifest.files] == [b"model", b"version: 1\n"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == [made.path.name]


def test_the_same_content_with_a_new_sequence_takes_its_place(tmp_path):
    write(tmp_path)

    made = write(tmp_path, release(sequence=8))

    assert open_bundle(made.path).manifest.sequence == 8
    assert len(list(tmp_path.iterdir())) == 1


def test_a_source_that_changed_meanwhile_leaves_nothing_behind(tmp_path):
    assert code_of(lambda: write(tmp_path, files={**FILES, "model.onnx": b"other"})) == "bundle.file"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out", "out/deeper", "closed", "closed/deeper"])
def test_a_folder_that_cannot_be_written_is_named_before_anything_is_made(tmp_path, monkeypatch, name):
    (tmp_path / "out").write_text("a file")
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path / "closed")

    for look in (require_writable, write) if name.startswith("out") else (require_writable,):
        error = error_of(look, tmp_path / name)
        assert error.code == "bundle.write"
        assert str(tmp_path / name) in error.problem
    require_writable(tmp_path / "new" / "deeper")
    assert {one.name for one in tmp_path.iterdir()} == {"out", "closed"}


def test_a_file_that_was_changed_is_found_when_it_is_used(tmp_path):
    opened = open_bundle(write(tmp_path).path)
    (opened.path / "model.onnx").write_bytes(b"molde")

    assert opened.path_of(opened.manifest.files[1]).read_bytes() == b"version: 1\n"
    assert code_of(lambda: opened.path_of(opened.manifest.files[0])) == "bundle.file"


def test_a_file_that_has_gone_is_named_before_and_after_it_was_checked(tmp_path):
    opened = open_bundle(write(tmp_path).path)
    model, pipeline = opened.manifest.files
    opened.path_of(pipeline)
    for file in (model, pipeline):
        (opened.path / file.path).unlink()

    assert code_of(lambda: opened.path_of(model)) == "bundle.file"
    for file in (model, pipeline):
        with pytest.raises(DeployError, match=file.path) as caught, opened.opened(file):
            pass
        assert caught.value.code == "bundle.file"


def test_f16_links_in_a_bundle_are_refused(tmp_path):
    made = write(tmp_path / "out")
    (tmp_path / "secret").write_bytes(b"model")
    (made.path / "model.onnx").unlink()
    (made.path / "model.onnx").symlink_to(tmp_path / "secret")

    opened = open_bundle(made.path)
    assert code_of(lambda: opened.path_of(opened.manifest.files[0])) == "bundle.file"

    (made.path / "manifest.json.sig").unlink()
    (made.path / "manifest.json.sig").symlink_to(tmp_path / "secret")
    assert code_of(lambda: open_bundle(made.path)) == "bundle.folder"


def test_f16_a_manifest_without_end_is_read_up_to_its_limit(tmp_path):
    made = write(tmp_path)
    with (made.path / "manifest.json").open("wb") as file:
        file.truncate(1024**3)

    assert code_of(lambda: open_bundle(made.path)) == "verify.manifest.size"


def test_what_is_no_bundle_is_named(tmp_path):
    with pytest.raises(DeployError, match="expected the folder of a bundle"):
        open_bundle(tmp_path / "none")
    assert code_of(lambda: open_bundle(tmp_path)) == "bundle.folder"
