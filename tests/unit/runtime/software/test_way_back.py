"""The way back and recovery, where releases bring their software: what is lost or damaged is mended, or left."""

import shutil

import pytest

from edge.bundle.manifest import Role, decode_manifest
from edge.device.software import Installation
from edge.runtime.agent.offer import is_built
from edge.runtime.build.handover import proof_of
from edge.runtime.build.request import read_request
from edge.runtime.software import install
from edge.runtime.software.binding import installed
from edge.runtime.software.install import keep_software
from edge.runtime.trial.rollback import go_back, recover_at_boot
from edge.runtime.trial.soundness import is_sound, problem_of_release, why_better
from tests.support.device_releases import attach_engine, put_on_trial, serving, stage
from tests.support.units import failed_units
from tests.support.wheels import key_of, software_files, tiny

OLDER = {"openvino": "before the upgrade"}


@pytest.fixture(autouse=True)
def starts(monkeypatch):
    monkeypatch.setattr(install, "why_no_start", lambda _folder: None)


def files_of(sequence, own):
    parts = {"model.onnx": (Role.MODEL, b"m%d" % sequence), "pipeline.yaml": (Role.PIPELINE, b"p")}
    return {**parts, **software_files(own)}


def proven(device, sequence, own=None):
    """Return a release that brings software, is installed, proven and current; and where its software lies."""
    files = files_of(sequence, tiny() if own is None else own)
    release = serving(device, sequence=sequence, files=files)
    keep_software(device)
    return release, Installation(key=key_of(files), beside=installed()).name


def asked_for(device):
    """Return the release for which an engine is to be built anew."""
    request = read_request(device.layout.build_request)
    return None if request is None else request.release


def lose_wheels(device, release, *, is_gone=True):
    for path, sha256 in device.releases.blobs(release).items():
        if path.startswith("wheels/"):
            device.layout.blob(sha256).unlink(missing_ok=True)
            if not is_gone:
                device.layout.blob(sha256).write_bytes(b"flipped")


@pytest.mark.parametrize("status", [1, 78])
def test_software_that_was_lost_is_asked_for_with_the_engine(device, status):
    release, name = proven(device, 1)
    shutil.rmtree(device.layout.software / name)
    assert is_sound(device, release)
    assert not is_built(device, release)

    way = go_back(device, failed_units(status), "unit-failed")

    assert (way.release, asked_for(device)) == (release, release)
    keep_software(device)
    assert problem_of_release(device, release) is None


def test_a_wheel_that_is_gone_is_not_missed_while_what_was_unpacked_of_it_is_whole(device):
    release, _ = proven(device, 1)
    lose_wheels(device, release)

    assert problem_of_release(device, release) is None
    assert is_built(device, release)
    assert recover_at_boot(device).release == release


@pytest.mark.parametrize(("is_gone", "code"), [(True, "device.release.missing"), (False, "device.release.damaged")])
def test_a_release_that_has_lost_wheels_and_software_is_left_for_the_one_before(device, is_gone, code):
    plain = serving(device, sequence=1)
    release, name = proven(device, 2)
    lose_wheels(device, release, is_gone=is_gone)
    shutil.rmtree(device.layout.software / name)
    assert problem_of_release(device, release).code == code
    assert not is_built(device, release)

    assert go_back(device, failed_units(78), "unit-failed").release == plain


def test_a_release_that_was_never_built_is_no_way_back_whatever_else_it_lacks(device):
    release = stage(device, files_of(1, b"no archive"))
    keep_software(device)

    assert problem_of_release(device, release).code == "device.engine.missing"
    assert not is_sound(device, release)


def test_an_engine_that_its_own_software_refuses_is_built_anew(device):
    # What it depends on is known to the software that loads it, which says no more than that it cannot serve.
    first, _ = proven(device, 1)
    second, _ = proven(device, 2, tiny(b"2"))
    for release in (first, second):
        attach_engine(device, release, versions=OLDER)
    assert problem_of_release(device, second) is None

    way = go_back(device, failed_units(78), "unit-failed")

    assert (way.release, asked_for(device)) == (second, second)


def test_a_configuration_that_is_refused_takes_one_rebuild_and_leaves_the_rest_to_the_release_before(device):
    plain = serving(device, sequence=1)
    release, _ = proven(device, 2)

    ways = [go_back(device, failed_units(78), "unit-failed") for _ in range(2)]

    assert ([way.release for way in ways], asked_for(device)) == ([release, plain], release)


def test_software_that_cannot_be_had_here_is_no_way_back(device, monkeypatch):
    first, name = proven(device, 1)
    second = serving(device, sequence=2)
    device.software.remove(name)
    monkeypatch.setattr(install, "why_no_start", lambda _folder: "it cannot be imported")
    keep_software(device)  # as after a provision with another Python

    assert not is_sound(device, first)
    assert go_back(device, failed_units(1), "unit-failed").release == second
    assert recover_at_boot(device).release == second


def test_a_wheel_that_is_lost_with_the_software_is_said_before_what_the_engine_lacks(device):
    release, name = proven(device, 1)
    lose_wheels(device, release)
    shutil.rmtree(device.layout.software / name)
    shutil.rmtree(device.layout.engines)

    assert problem_of_release(device, release).code == "device.release.missing"


def test_the_frames_are_passed_by_the_software_that_is_to_serve(device):
    golden = {"golden.json": (Role.GOLDEN, b"g"), "golden/1.png": (Role.GOLDEN_IMAGE, b"i")}
    parts = {path: file for path, file in files_of(1, tiny()).items() if file[0] is not Role.SOFTWARE}
    releases = [stage(device, {**files, **golden}) for files in (parts, files_of(1, tiny()), files_of(1, tiny(b"2")))]

    proofs = {proof_of(decode_manifest(device.releases.manifest(release))) for release in releases}

    assert len(proofs - {""}) == 3


def test_on_trial_no_software_is_waited_for_and_the_release_before_serves(device):
    first, _ = proven(device, 1)
    second = stage(device, files_of(2, tiny(b"2")), sequence=2)
    attach_engine(device, second)
    put_on_trial(device, second)  # and its software is not there

    way = go_back(device, failed_units(78), "unit-failed")

    assert (way.release, asked_for(device)) == (first, None)


def test_what_only_other_software_knows_of_an_engine_is_not_judged_here(device):
    release, _ = proven(device, 1)
    attach_engine(device, release, kind="quantum", versions={"quantum": "1"})

    assert problem_of_release(device, release) is None
    assert why_better(device, release) is None
    plain = serving(device, sequence=2)
    attach_engine(device, plain, versions=OLDER)
    assert problem_of_release(device, plain).code == "device.engine.changed"


def test_a_device_that_lost_its_software_while_it_was_off_keeps_its_release(device):
    serving(device, sequence=1)
    release, name = proven(device, 2)
    shutil.rmtree(device.layout.software / name)

    assert recover_at_boot(device).release == release
