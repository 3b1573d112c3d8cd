"""A builder that somebody took over: what it may leave for edge-deploy, and what comes of it; each with its own uid."""

import dataclasses
import hashlib
import json
import os
import shutil

import pytest

from edge.bundle.manifest import Role
from edge.device.device import Device
from edge.device.engines import BUILD, GOLDEN, PLAN
from edge.device.layout import Layout
from edge.runtime.build.handover import ANSWER, MADE, Taken, take_over
from edge.runtime.build.request import ask, decode_result, read_result
from tests.support.device_releases import (
    PARTS,
    leave_answer,
    leave_engine,
    leave_files,
    plan_of,
    record_of,
    request_of,
    serving,
    stage,
)
from tests.support.people import needs_open_clone, needs_root, provisioned_root, user_of

pytestmark = [
    needs_root,
    needs_open_clone,
    pytest.mark.slow_but(reason="further requests to a device: the first row of each test is quick"),
]
PLAN_BYTES = b"a plan that nobody can run"
BUILDER = user_of("edge-build")


@pytest.fixture
def device(crowd):
    with provisioned_root(crowd) as root:
        device = Device(Layout(root))
        crowd.call("edge-deploy", lambda: serving(device))
        yield device


@pytest.fixture
def release(crowd, device):
    """A release that has no engine, and a request for one."""

    def asked():
        name = stage(device, sequence=2)
        ask(device, name)
        return name

    return crowd.call("edge-deploy", asked)


@pytest.fixture
def proven(crowd, device):
    """A release with golden frames, and a request for its engine."""

    def asked():
        golden = {"golden/golden.json": (Role.GOLDEN, b"g"), "golden/00.png": (Role.GOLDEN_IMAGE, b"i")}
        name = stage(device, {**PARTS, **golden}, sequence=3)
        ask(device, name)
        return name

    return crowd.call("edge-deploy", asked)


def taken(crowd, device):
    """Let edge-deploy take over what lies there; return what it found, and the result that it wrote."""
    found = crowd.call("edge-deploy", lambda: take_over(device).name)
    kept = crowd.call("edge-deploy", lambda: read_result(device).encode().decode())
    return Taken[found], decode_result(kept.encode())


def refused(crowd, device, release):
    before = tree(device)
    found, result = taken(crowd, device)
    assert (found, result.key, result.problem.code) == (Taken.ANSWER, None, "build.untrusted")
    assert device.releases.engine_key(release) is None
    assert tree(device) == before
    return result.problem.problem


def leave_named(device, key, *, reused=False):
    """Leave an engine, or none where it is said to be here, and an answer that names another one."""
    if not reused:
        leave_engine(device, plan=PLAN_BYTES)
    leave_answer(device.layout, request_of(device), key=key, reused=reused, seconds=1.0)


def tree(device):
    """Everything that decides what serves, and its content."""
    paths = [path for path in device.layout.var.rglob("*") if not path.name.startswith("build-re")]
    return {path: path.read_bytes() if path.is_file() else os.path.islink(path) and os.readlink(path) for path in paths}


def test_what_an_honest_builder_leaves_becomes_edge_deploys_own_for_good(crowd, device, release):
    crowd.call(BUILDER, lambda: leave_engine(device, plan=PLAN_BYTES).inputs.key)

    found, result = taken(crowd, device)

    assert (found, result.problem, result.release) == (Taken.ANSWER, None, release)
    assert device.releases.engine_key(release) == result.key
    assert plan_of(device, result.key)[1] == PLAN_BYTES
    owners = {path.stat().st_uid for path in device.layout.engine(result.key).iterdir()}
    assert owners == {crowd.uids["edge-deploy"]}
    assert not device.layout.build_request.exists()

    def change():
        (device.layout.engine(result.key) / PLAN).write_bytes(b"another plan")

    with pytest.raises(AssertionError, match="PermissionError"):
        crowd.call(BUILDER, change)


def instead(name, make):
    """Leave an engine, and something else under one of its names."""

    def leave(device):
        leave_engine(device, plan=PLAN_BYTES)
        path = device.layout.workshop / (name if name == ANSWER else f"{MADE}/{name}")
        path.unlink()
        make(device, path)

    return leave


def growing(device, path):
    with path.open("wb") as file:
        file.truncate(1 << 40)


ODD = {
    "a link to the counters": lambda device, path: path.symlink_to(device.layout.state),
    "a link to a device without end": lambda device, path: path.symlink_to("/dev/zero"),
    "a FIFO": lambda device, path: os.mkfifo(path, 0o644),
    "a folder": lambda device, path: path.mkdir(),
    "a terabyte": growing,
    "no JSON": lambda device, path: path.write_bytes(b"\x00" * 100),
    "deep JSON": lambda device, path: path.write_bytes(b"[" * 60000),
    "nothing": lambda device, path: None,
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("name", [PLAN, BUILD])
def test_a_file_of_another_kind_is_no_engine(crowd, device, release, name, what):
    crowd.call(BUILDER, lambda: instead(name, ODD[what])(device))

    refused(crowd, device, release)


@pytest.mark.parametrize("what", ODD)
def test_an_answer_of_another_kind_is_none(crowd, device, release, what):
    crowd.call(BUILDER, lambda: instead(ANSWER, ODD[what])(device))

    assert crowd.call("edge-deploy", lambda: take_over(device).name) == "NOTHING"


@pytest.mark.parametrize("what", [one for one in ODD if one != "nothing"])
def test_golden_numbers_of_another_kind_prove_nothing(crowd, device, proven, what):
    crowd.call(BUILDER, lambda: instead(GOLDEN, ODD[what])(device))

    refused(crowd, device, proven)


def test_a_file_of_somebody_else_under_a_second_name_is_not_copied(crowd, device, release):
    crowd.call(BUILDER, lambda: instead(PLAN, lambda device, path: None)(device))
    secret = device.layout.var / "secret"
    secret.write_bytes(PLAN_BYTES)
    os.chown(secret, crowd.uids["edge-deploy"], crowd.gids["edge-deploy"])
    os.link(secret, device.layout.workshop / MADE / PLAN)  # as the builder could without fs.protected_hardlinks

    assert "with one name" in refused(crowd, device, release)


def test_a_folder_that_is_a_link_leads_nowhere(crowd, device, release):
    def leave():
        leave_engine(device, plan=PLAN_BYTES)
        made = device.layout.workshop / MADE
        shutil.rmtree(made)
        made.symlink_to(device.layout.engines / os.listdir(device.layout.engines)[0])

    crowd.call(BUILDER, leave)

    refused(crowd, device, release)


def with_record(**changes):
    """An engine whose record says something else than the truth, and agrees with itself."""

    def leave(device):
        leave_engine(device, plan=PLAN_BYTES)
        request = request_of(device)
        record = record_of(manifest_of(device, request.release), PLAN_BYTES)
        inputs = {name: value for name, value in changes.items() if hasattr(record.inputs, name)}
        record = dataclasses.replace(
            record,
            inputs=dataclasses.replace(record.inputs, **inputs),
            **{name: value for name, value in changes.items() if name not in inputs},
        )
        leave_files(device.layout, {BUILD: record.encode()})
        leave_answer(device.layout, request, key=record.inputs.key, reused=False, seconds=1.0)

    return leave


def manifest_of(device, release):
    from edge.bundle.manifest import decode_manifest

    return decode_manifest(device.releases.manifest(release))


@pytest.mark.parametrize(
    "changes",
    [
        {"onnx_sha256": "1" * 64},
        {"calibration_sha256": "1" * 64},
        {"versions": {"openvino": "1.0"}},
        {"kind": "of-an-attacker"},
        {"plan_sha256": "1" * 64},
        {"plan_bytes": 7},
        {"plan_bytes": -1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_engine_that_is_not_of_this_release_or_device_is_not_taken_over(crowd, device, release, changes):
    crowd.call(BUILDER, lambda: with_record(**changes)(device))

    refused(crowd, device, release)


def test_the_engine_that_serves_is_not_replaced_by_one_under_its_name(crowd, device, release):
    serves = device.releases.engine_key(device.releases.current())
    crowd.call(BUILDER, lambda: leave_named(device, serves))

    assert "describes engine" in refused(crowd, device, release)


def test_a_key_that_is_a_path_is_refused(crowd, device, release):
    crowd.call(BUILDER, lambda: leave_named(device, "../../current"))
    _, result = taken(crowd, device)

    assert result.problem.code == "request.engine"


@pytest.mark.parametrize("numbers", [{}, {"passed": False}, {"passed": True}, {"passed": 1, "images": 1}, None])
def test_an_engine_that_does_not_say_that_it_passed_the_golden_frames_is_not_taken_over(crowd, device, proven, numbers):
    def leave():
        leave_engine(device, plan=PLAN_BYTES)
        path = device.layout.workshop / MADE / GOLDEN
        path.unlink() if numbers is None else path.write_text(json.dumps(numbers))

    crowd.call(BUILDER, leave)

    assert "golden frames" in refused(crowd, device, proven)


def test_an_engine_that_is_said_to_be_here_and_is_not_is_refused(crowd, device, release):
    crowd.call(BUILDER, lambda: leave_named(device, hashlib.sha256(b"nothing").hexdigest(), reused=True))

    assert "said to be here" in refused(crowd, device, release)


def test_the_answer_to_an_earlier_request_is_not_taken_for_this_one(crowd, device, release):
    crowd.call(BUILDER, lambda: leave_engine(device, plan=PLAN_BYTES).inputs.key)
    crowd.call("edge-deploy", lambda: ask(device, release).id)

    assert crowd.call("edge-deploy", lambda: take_over(device).name) == "OTHER"
