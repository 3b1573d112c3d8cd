"""Takes over the files that a builder leaves in its own folder. Standard library only.

The builder works on a stranger's model with native code, as a user of its own: whatever lies in its folder may be of
somebody who took it over. So its files are read as those of another user, what can be told of them otherwise is
compared (docs/adr/0016), and they are copied: a file that was moved would still be the builder's, who could change it.
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

from edge.bundle.manifest import Manifest, Role, decode_manifest
from edge.bundle.software import software_of
from edge.codec import encode
from edge.device.device import Device
from edge.device.engines import BUILD, GOLDEN, MAX_PLAN_BYTES, PLAN, EngineRecord, check_key, decode_record, read_plan
from edge.errors import DeployError
from edge.reading import json_object, read_file
from edge.runtime.build.request import (
    MAX_RESULT_BYTES,
    BuildResult,
    PendingBuild,
    decode_golden,
    decode_request,
    decode_result,
)
from edge.runtime.software.binding import is_this
from edge.runtime.trial.soundness import engine_versions
from edge.wire.peer import problem_of
from edge.wire.release import Golden

__all__ = ["ANSWER", "MADE", "Taken", "adopt", "answered", "golden_numbers", "proof_in", "proof_of", "take_over"]

ANSWER = "answer.json"
MADE = "made"
_MAX_TEXT = 2000
_PRECISIONS = ("int8", "fp16", "fp32")


class Taken(enum.Enum):
    """The found answer: to this request, to another one, or none."""

    ANSWER = "answer"
    OTHER = "other"
    NOTHING = "nothing"


def take_over(device: Device) -> Taken:
    """Take over what the builder has answered to the request that stands; what came of it is in `build-result.json`.

    An engine that is not what its builder says, or not of this release, ends as a build that failed. Raises
    `DeployError`: `device.disk.*`; the request stands, and it can be taken over again.
    """
    layout = device.layout
    asked = _asked(device)
    answer = None if asked is None else _answer(layout.workshop)
    if asked is None or answer is None:
        return Taken.NOTHING
    if (answer.id, answer.release) != (asked.id, asked.release):
        return Taken.OTHER
    device.durable.put(layout.build_result, _result(device, asked, answer).encode(), mode=0o600)
    device.durable.remove(layout.build_request)
    return Taken.ANSWER


def answered(device: Device) -> str:
    """Return the number of the request that the builder has answered last; empty where there is no answer."""
    answer = _answer(device.layout.workshop)
    return "" if answer is None else answer.id


def adopt(device: Device, made: Path, answer: BuildResult, manifest: Manifest) -> BuildResult:
    """Make what was built in the folder `made` an engine of this device; return what its own files say of it.

    Args:
        made: what the builder has left: the plan, `build.json` and `golden.json`; of an engine that was here and is
            used again the last of them.
        answer: of the builder, with an engine.
        manifest: of the release that gets it.

    Raises `DeployError` `build.untrusted` with what does not fit; `device.disk.*`.
    """
    key = check_key(str(answer.key))
    record = _taken(device, made, key, manifest, is_reused=answer.reused)
    if device.releases.engine_key(manifest.release) != key:
        device.releases.attach_engine(manifest.release, key)
    return replace(
        answer,
        golden=golden_numbers(device.engines.read(key, GOLDEN)) if proof_of(manifest) else None,
        engine=record.line[:_MAX_TEXT],
        precision=record.precision,
        report=dict(record.report),
    )


def _taken(device: Device, made: Path, key: str, manifest: Manifest, *, is_reused: bool) -> EngineRecord:
    is_known = is_this(device, manifest.release)
    stored = _intact(device, key, is_known=is_known)
    if is_reused:
        if stored is None:
            raise _untrusted(f"the engine {key[:12]} that is said to be here is not, or is damaged")
        if proof_of(manifest) not in ("", proof_in(device, key)):  # it has passed these golden frames, too
            device.durable.put(device.layout.engine(key) / GOLDEN, _golden(made, manifest))
        return stored
    record, plan = _built(made, key, manifest, is_known=is_known)
    files = {PLAN: plan, BUILD: record.encode(), GOLDEN: _golden(made, manifest)}
    device.engines.take(key, files, replaces=stored is None or stored.plan_sha256 != record.plan_sha256)
    return record


def golden_numbers(content: bytes) -> Golden | None:
    """Return what the gate found, as `decode_golden`; DeployError `build.failed` if that cannot be read."""
    try:
        return decode_golden(content)
    except ValueError as error:
        raise DeployError("build.failed", f"{GOLDEN} of the build cannot be read: {error}") from None


def proof_of(manifest: Manifest) -> str:
    """Return what a passed gate stands for: these frames, these limits, this software; empty where there are none."""
    frames = [one.sha256 for role in (Role.GOLDEN, Role.GOLDEN_IMAGE) for one in manifest.files_of(role)]
    limits = manifest.golden
    content = [*frames, limits.min_recall, limits.max_extra, limits.min_iou, limits.max_score_error]
    software = software_of(manifest)
    content += [] if software is None else [software.key]  # what finds boxes in what the engine says is its own
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16] if frames else ""


def proof_in(device: Device, key: str) -> str:
    """Return what the engine that is here has proven, as `proof_of`; empty: nothing that can be read."""
    try:
        return str(json_object(device.engines.read(key, GOLDEN)).get("proof", ""))
    except (DeployError, ValueError):
        return ""


def _asked(device: Device) -> PendingBuild | None:
    path = device.layout.build_request
    try:
        return decode_request(device.durable.files.read(path), origin=str(path))
    except (OSError, DeployError):  # nothing is asked, or what is asked is damaged: no client waits for that
        return None


def _answer(workshop: Path) -> BuildResult | None:
    try:
        return decode_result(_read(workshop / ANSWER, most_bytes=MAX_RESULT_BYTES))
    except (OSError, ValueError):
        return None


def _read(path: Path, *, most_bytes: int) -> bytes:
    # Of the folder's owner and of no other name: a hard link could be to what only edge-deploy may read.
    return read_file(path, most_bytes=most_bytes, owner=os.lstat(path.parent).st_uid)


def _result(device: Device, asked: PendingBuild, answer: BuildResult) -> BuildResult:
    if answer.problem is not None:
        return answer
    try:
        manifest = decode_manifest(device.releases.manifest(asked.release))
        return adopt(device, device.layout.workshop / MADE, answer, manifest)
    except DeployError as error:
        if error.code.startswith("device.disk."):
            raise
        return BuildResult(release=asked.release, id=asked.id, problem=problem_of(error))


def _intact(device: Device, key: str, *, is_known: bool) -> EngineRecord | None:
    try:
        return read_plan(device.engines, key, versions_of=engine_versions if is_known else None)[0]
    except DeployError:
        return None


def _built(made: Path, key: str, manifest: Manifest, *, is_known: bool) -> tuple[EngineRecord, bytes]:
    """Return what was built; `is_known`: for the software that this process is, which knows what it depends on."""
    try:
        record = decode_record(_read(made / BUILD, most_bytes=MAX_RESULT_BYTES))
        plan = _read(made / PLAN, most_bytes=max(0, min(record.plan_bytes, MAX_PLAN_BYTES)))
    except (OSError, ValueError) as error:
        raise _untrusted(f"what was built cannot be read: {error}") from None
    if (hashlib.sha256(plan).hexdigest(), len(plan)) != (record.plan_sha256, record.plan_bytes):
        raise _untrusted(f"{PLAN} is not what {BUILD} says ({len(plan)} bytes, {record.plan_bytes} expected)")
    if record.inputs.key != key:
        raise _untrusted(f"{BUILD} describes engine {record.inputs.key[:12]}, not {key[:12]}")
    if is_known and record.inputs.versions != engine_versions(record.inputs.kind):
        raise _untrusted(f"it is of other software than is here: {record.inputs.kind}, {dict(record.inputs.versions)}")
    if record.precision not in _PRECISIONS:
        raise _untrusted(f"{record.precision!r} is no precision")
    models = {one.sha256 for one in manifest.files_of(Role.MODEL)}
    tables = {None, *(one.sha256 for one in manifest.files_of(Role.CALIBRATION))}
    if record.inputs.onnx_sha256 not in models or record.inputs.calibration_sha256 not in tables:
        raise _untrusted(f"it was built of another model or table than those of release {manifest.release}")
    return record, plan


def _golden(made: Path, manifest: Manifest) -> bytes:
    """Return what goes to `golden.json`: the numbers, and of which frames they are."""
    proof = proof_of(manifest)
    try:
        golden = decode_golden(_read(made / GOLDEN, most_bytes=MAX_RESULT_BYTES))
    except FileNotFoundError:
        golden = None  # there are no golden frames, or it fails below
    except (OSError, ValueError) as error:
        raise _untrusted(f"{GOLDEN} cannot be read, so no golden frames were passed: {error}") from None
    if proof and (golden is None or not golden.passed):
        raise _untrusted("it does not say that the golden frames of this release were passed")
    numbers = {"passed": None} if golden is None else encode(golden)
    return json.dumps({**numbers, "proof": proof}, indent=1).encode() + b"\n"


def _untrusted(problem: str) -> DeployError:
    return DeployError(
        "build.untrusted",
        f"what the builder has left is not taken over: {problem}",
        hint="push it again; if it repeats, somebody may have taken the builder over: look at journalctl -u edge-build",
    )
