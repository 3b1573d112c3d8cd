"""Releases and engines on a device in a folder, written by the device's own code, and what a builder leaves."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge.bundle.manifest import (
    GoldenFrames,
    HealthLimits,
    Manifest,
    Role,
    decode_manifest,
    encode_manifest,
    release_name,
)
from edge.bundle.sign import sign
from edge.device.device import Device
from edge.device.engines import BUILD, GOLDEN, PLAN, EngineRecord, read_plan
from edge.device.facts import this_moment
from edge.device.layout import Layout
from edge.device.releases import MANIFEST
from edge.device.switch import arm, commit, switch_to
from edge.engine.kinds import AUTO, choose_kind
from edge.runtime.build.handover import ANSWER, MADE
from edge.runtime.build.request import PendingBuild, decode_request
from edge.runtime.trial.soundness import engine_versions
from tests.support.manifests import allow, bundled, manifest, ssh_key
from tests.support.values import engine_inputs, engine_record

PARTS = {"model.onnx": (Role.MODEL, b"m"), "pipeline.yaml": (Role.PIPELINE, b"p")}
TOML = 'name = "gate-01"\ncompatible = ["any"]\n'


def make_device(root: Path) -> Device:
    device = Device(Layout(root))
    layout = device.layout
    for folder in (layout.etc, layout.var, layout.workshop, layout.run, layout.health.parent):
        folder.mkdir(parents=True)
    device.layout.device_toml.write_text(TOML)
    allow(device.layout.allowed_signers, signer_of(device))
    return device


def signer_of(device: Device, name: str = "signer") -> Path:
    """Return a key, which is made when it is first asked for; "signer" is whom the device trusts."""
    folder = device.layout.root / "keys"
    folder.mkdir(exist_ok=True)
    return folder / name if (folder / name).exists() else ssh_key(folder, name)


def stage(
    device: Device,
    files: Mapping[str, tuple[Role, bytes]] | None = None,
    *,
    health: HealthLimits | None = None,
    sequence: int = 1,
    key: Path | None = None,
    **more: object,
) -> str:
    """Put a release on the device; without `files` it is a pipeline and a model that nobody can run.

    `key` has signed it, or whom the device trusts.
    """
    files = files or {"model.onnx": (Role.MODEL, b"m%d" % sequence), "pipeline.yaml": (Role.PIPELINE, b"p")}
    for _, content in files.values():
        put_blob(device, content)
    listed = tuple(bundled(path, role, content) for path, (role, content) in sorted(files.items()))
    has_golden = any(one.role is Role.GOLDEN for one in listed)
    made = manifest(
        sequence=sequence,
        created_at="2026-01-01T00:00:00Z",
        health=health or HealthLimits(),
        golden_frames=GoldenFrames.OUTSIDE if has_golden else GoldenFrames.NONE,
        files=listed,
        **more,
    )
    content = encode_manifest(made)
    device.releases.stage(
        made.release,
        manifest=content,
        signature=sign(content, key or signer_of(device)),
        files={one.path: one.sha256 for one in listed},
    )
    return made.release


def forge(device: Device, release: str, path: str, content: bytes) -> None:
    """Have a kept release say that `path` is `content`; blob, link and manifest agree, and nobody has signed it.

    Whoever has the rights of edge-deploy on a device can write so, but for the name of the release's folder.
    """
    folder = device.layout.release(release)
    kept = decode_manifest(device.releases.manifest(release))
    files = [one for one in kept.files if one.path != path]
    (old,) = (one for one in kept.files if one.path == path)
    new = dataclasses.replace(old, length_bytes=len(content), sha256=put_blob(device, content))
    forged = dataclasses.replace(kept, files=(*files, new))
    (folder / path).unlink()
    (folder / path).symlink_to(os.path.relpath(device.layout.blob(new.sha256), (folder / path).parent))
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).write_bytes(encode_manifest(dataclasses.replace(forged, release=release_name(forged))))


def flip(path: Path) -> None:
    """Turn a bit in the middle of a file around."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(content))


def put_blob(device: Device, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    if content and not device.store.has(sha256):
        device.store.begin(sha256, len(content))
        device.store.write(sha256, 0, content)
        device.store.finish(sha256, len(content))
    return sha256


def attach_engine(device: Device, release: str, *, plan: bytes = b"a plan", **inputs: object) -> str:
    """Give a release an engine as a build would leave it, of bytes that nobody can run."""
    record = record_of_plan(plan, **{"onnx_sha256": hashlib.sha256(release.encode()).hexdigest(), **inputs})
    device.engines.take(record.inputs.key, {PLAN: plan, BUILD: record.encode()}, replaces=False)
    device.releases.attach_engine(release, record.inputs.key)
    return record.inputs.key


def plan_of(device: Device, key: str) -> tuple[EngineRecord, bytes]:
    return read_plan(device.engines, key, versions_of=engine_versions)


def serving(device: Device, *, sequence: int = 1, **more: object) -> str:
    """Put a release on the device that is proven and current."""
    release = stage(device, sequence=sequence, **more)  # type: ignore[arg-type]
    attach_engine(device, release)
    put_on_trial(device, release)
    commit(device, moment=this_moment())
    return release


def put_on_trial(device: Device, release: str, **more: object) -> None:
    arm(device, release, moment=this_moment(), **more)  # type: ignore[arg-type]
    switch_to(device, release)


NUMBERS = json.dumps({"passed": True, "images": 1, "expected": 1, "found": 1, "extra": 0, "score_error": 0.0}).encode()


def record_of(manifest: Manifest, plan: bytes, **inputs: Any) -> EngineRecord:
    """Return what an honest builder writes of a plan of the release; `inputs` are those that are to be otherwise."""
    tables = [one.sha256 for one in manifest.files_of(Role.CALIBRATION)]
    known = {
        "onnx_sha256": manifest.files_of(Role.MODEL)[0].sha256,
        "calibration_sha256": tables[0] if tables else None,
        "options": {"release": manifest.release},  # so that each release has an engine of its own
    }
    return record_of_plan(plan, **{**known, **inputs})


def record_of_plan(plan: bytes, **inputs: Any) -> EngineRecord:
    """Return the record of a plan in fp32 of the kind that this machine builds; nothing of it can be run."""
    facts = choose_kind(AUTO).facts
    known = {"kind": facts.name, "precision": "fp32", "versions": facts.versions()}
    sha256 = hashlib.sha256(plan).hexdigest()
    return engine_record(
        engine_inputs(**{**known, **inputs}), plan_sha256=sha256, plan_bytes=len(plan), precision="fp32"
    )


def request_of(device: Device) -> PendingBuild:
    return decode_request(device.durable.files.read(device.layout.build_request), origin="the request")


def leave_engine(device: Device, *, plan: bytes, **inputs: Any) -> EngineRecord:
    """Answer the request that stands with an engine; return its record."""
    request = request_of(device)
    record = record_of(decode_manifest(device.releases.manifest(request.release)), plan, **inputs)
    leave_files(device.layout, {PLAN: plan, BUILD: record.encode(), GOLDEN: NUMBERS})
    leave_answer(device.layout, request, key=record.inputs.key, reused=False, seconds=1.0)
    return record


def leave_files(layout: Layout, files: Mapping[str, bytes]) -> None:
    made = layout.workshop / MADE
    made.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (made / name).write_bytes(content)


def leave_answer(layout: Layout, request: PendingBuild, **values: Any) -> None:
    layout.workshop.mkdir(parents=True, exist_ok=True)
    (layout.workshop / ANSWER).write_text(json.dumps({"id": request.id, "release": request.release, **values}))
