import dataclasses

import pytest

from edge.bundle.manifest import Role, decode_manifest, encode_manifest, release_name
from edge.bundle.software import software_of
from edge.errors import DeployError
from tests.support.manifests import bundled, manifest
from tests.support.wheels import OWN, key_of, software_files, tiny

NUMPY = "numpy-2.2.6-cp311-cp311-manylinux_2_17_x86_64.whl"


def with_files(files):
    parts = {"model.onnx": (Role.MODEL, b"m"), "pipeline.yaml": (Role.PIPELINE, b"p"), **files}
    return manifest(files=tuple(bundled(path, role, content) for path, (role, content) in sorted(parts.items())))


def test_a_release_without_wheels_brings_no_software():
    assert software_of(manifest()) is None


def test_software_is_named_by_all_of_its_wheels():
    files = software_files(tiny(), **{NUMPY: b"n"})

    found = software_of(with_files(files))

    assert found.key == key_of(files)
    assert found.version == "0.1.0"
    assert [one.path for one in found.wheels] == sorted([OWN, f"wheels/{NUMPY}"])
    assert found.key != software_of(with_files(software_files(tiny(), **{NUMPY: b"other"}))).key
    assert found.key != software_of(with_files(software_files(tiny()))).key


def test_the_same_software_has_the_same_key_in_another_release():
    one, other = (with_files({**software_files(tiny()), "clips/a.mp4": (Role.CLIP, mark)}) for mark in (b"1", b"2"))

    assert one.release != other.release
    assert software_of(one).key == software_of(other).key


def test_a_wheel_for_another_machine_is_named():
    found = software_of(with_files(software_files(tiny(), **{NUMPY: b"n"})))

    assert found.misfit(python=(3, 11), architecture="x86_64") is None
    assert found.misfit(python=(3, 11), architecture="aarch64") == NUMPY
    assert found.misfit(python=(3, 10), architecture="x86_64") == NUMPY


@pytest.mark.parametrize(
    "files",
    [
        {f"wheels/{NUMPY}": (Role.SOFTWARE, b"n")},  # libraries without what they are for
        {OWN: (Role.SOFTWARE, b"1"), "wheels/edge_deploy-9-py3-none-any.whl": (Role.SOFTWARE, b"2")},
        {OWN: (Role.SOFTWARE, b"1"), "wheels/run.sh": (Role.SOFTWARE, b"2")},
        {OWN: (Role.SOFTWARE, b"1"), "clips/numpy.whl": (Role.SOFTWARE, b"2")},
        {"edge_deploy-0.1.0-py3-none-any.whl": (Role.SOFTWARE, b"1")},
    ],
    ids=["no-own", "two-own", "no-wheel", "elsewhere", "own-elsewhere"],
)
def test_what_is_no_software_is_refused_where_the_manifest_is_read(files):
    with pytest.raises(DeployError, match="files for software") as refused:
        with_files(files)
    assert refused.value.code == "verify.manifest.files"


def test_the_folder_of_wheels_is_for_nothing_else():
    with pytest.raises(DeployError, match="wheels/ is for software"):
        with_files({"wheels/a.mp4": (Role.CLIP, b"c")})


def test_a_manifest_with_software_is_read_as_it_was_written():
    made = with_files(software_files(tiny()))

    read = decode_manifest(encode_manifest(made))

    assert read == made
    assert release_name(dataclasses.replace(made, sequence=99)) == made.release
