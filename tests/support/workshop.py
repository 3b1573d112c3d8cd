"""What a builder leaves for edge-deploy, of bytes that nobody can run: files and an answer in the builder's folder."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from edge.bundle.manifest import Manifest, Role, decode_manifest
from edge.device.device import Device
from edge.device.engines import BUILD, GOLDEN, PLAN, EngineRecord
from edge.device.layout import Layout
from edge.engine.kinds import AUTO, choose_kind
from edge.runtime.build.handover import ANSWER, MADE
from edge.runtime.build.request import PendingBuild, decode_request
from tests.support.values import engine_inputs, engine_record

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
    """Return what the device's builder is asked for."""
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
