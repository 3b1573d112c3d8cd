"""`edge-runtime build`: an engine that was built here, from what was verified, and has passed its golden frames."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge.bundle.manifest import Manifest, Role, decode_manifest
from edge.config.load import load_pipeline
from edge.config.pipeline import Pipeline
from edge.device.device import Device
from edge.device.engine_record import (
    BUILD,
    GOLDEN,
    MAX_PLAN_BYTES,
    PLAN,
    EngineInputs,
    EngineRecord,
    read_plan,
    read_record,
)
from edge.device.lock import engines_lock
from edge.device.releases import MANIFEST
from edge.engine.pipeline_model import read_model
from edge.engine.section import choose_engine
from edge.errors import DeployError, EdgeError, EngineError
from edge.reading import json_object, read_file
from edge.runtime.build.handover import MADE, adopt, proof_of
from edge.runtime.build.inputs import engine_inputs
from edge.runtime.build.process import read_json, run_worker, stopped
from edge.runtime.build.progress import write_progress
from edge.runtime.build.worker import Job, KeptPlan
from edge.runtime.software.running import module_command
from edge.runtime.software.said import require_to_build
from edge.runtime.trial.intact import require_intact
from edge.runtime.trial.soundness import engine_versions, require_files

__all__ = ["Builder", "Built", "MadeEngine", "build_for_pipeline", "build_for_release", "make_for_release"]
__all__ += ["make_in_workshop"]

_log = logging.getLogger(__name__)
_WORKER = module_command("edge.runtime.build.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An engine of this device: its key and record, how long it took, the gate's numbers, whether it was there."""

    key: str
    record: EngineRecord
    seconds: float
    golden: Mapping[str, Any]
    is_reused: bool

    def as_json(self, release: str | None) -> dict[str, Any]:
        """Return what is said of it."""
        return {
            "release": release,
            "ok": True,
            "key": self.key,
            "seconds": self.seconds,
            "golden": dict(self.golden),
            "reused": self.is_reused,
            "engine": self.record.line,
            "precision": self.record.precision,
            "report": dict(self.record.report),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeEngine:
    """What lies in a folder to be taken over: an engine, or only what its golden frames said of one that is here."""

    key: str
    record: EngineRecord
    seconds: float
    golden: Mapping[str, Any]
    is_reused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """Who builds, and when it has to stop.

    Attributes:
        device: whose engines.
        deadline_s: for building and proving together.
        stop: set by SIGTERM: the build ends, and leaves nothing.
        worker: the process that works; a test brings one that crashes.
    """

    device: Device
    deadline_s: float
    stop: threading.Event = field(default_factory=threading.Event)
    worker: Sequence[str] = _WORKER

    def run(self, job: Job) -> Mapping[str, Any]:
        """Let the worker do a job, as `run_worker` does; how far it is, is logged and left for the agent."""
        try:
            return run_worker(
                job, worker=self.worker, deadline_s=self.deadline_s, stop=self.stop, on_progress=self._tell
            )
        finally:
            self.device.layout.build_progress.unlink(missing_ok=True)

    def _tell(self, note: str) -> None:
        _log.info("build %s", note)
        write_progress(self.device.layout.build_progress, note)


def build_for_release(builder: Builder, release: str) -> Built:
    """Return the release's engine, attached to it: one that is here and intact, or a new one.

    For whoever may write both: on a device the two halves are `make_for_release` of the builder and
    `edge.runtime.build.handover` of edge-deploy. An engine may be shared by releases with other golden frames: each of
    them has to pass its own.

    Raises:
        DeployError: `smoke.accuracy` with the numbers of each class; `build.oom`, `build.timeout`, `build.stopped`,
            `build.failed`, `build.kind`, `build.untrusted`; `device.release.*`.
    """
    with _alone(builder), _folder() as folder:
        made = make_for_release(builder, release, folder)
        manifest = decode_manifest(builder.device.releases.manifest(release))
        built = _adopted(builder.device, folder, made, manifest)
    builder.device.releases.attach_engine(release, built.key)
    return built


def build_for_pipeline(builder: Builder, path: Path) -> Built:
    """Return the engine of a pipeline file, which nobody has proven: there are no golden frames.

    Raises:
        DeployError: as `build_for_release`.
    """
    with _alone(builder), _folder() as folder:
        made = _build(builder, _read(path), folder, proof=None, proof_id="")
        return _adopted(builder.device, folder, made, None)


def make_for_release(builder: Builder, release: str, folder: Path) -> MadeEngine:
    """Leave the release's engine in an empty folder, or the numbers of one that is here and has passed its frames.

    Nothing else is written.

    Raises:
        DeployError: as `build_for_release`.
    """
    device = builder.device
    require_to_build(device, release)
    manifest = require_files(device, release)
    _require_golden(device, manifest)
    kept = device.layout.release(release)
    pipeline = _read(kept / manifest.files_of(Role.PIPELINE)[0].path)
    proof = None if not manifest.files_of(Role.GOLDEN) else kept / MANIFEST
    return _build(builder, pipeline, folder, proof=proof, proof_id=proof_of(manifest))


def make_in_workshop(builder: Builder, release: str) -> MadeEngine:
    """Do `make_for_release` in the builder's own folder, where edge-deploy looks for it."""
    folder = builder.device.layout.workshop / MADE
    with _alone(builder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o750)
        return make_for_release(builder, release, folder)


def _adopted(device: Device, folder: Path, made: MadeEngine, manifest: Manifest | None) -> Built:
    record = adopt(device, folder, made.key, manifest=manifest, is_reused=made.is_reused)
    golden = (_golden_of(device, made.key) or {}) if proof_of(manifest) else {}
    return Built(key=made.key, record=record, seconds=made.seconds, golden=golden, is_reused=made.is_reused)


def _build(builder: Builder, pipeline: Pipeline, folder: Path, *, proof: Path | None, proof_id: str) -> MadeEngine:
    started_s = time.monotonic()
    inputs = _typed_inputs(pipeline, proof_id)
    is_reused = _reuse(builder, pipeline, inputs, folder, proof=proof, proof_id=proof_id)
    if is_reused:
        record = read_record(builder.device.engines, inputs.key)
    else:
        record = _make(builder, pipeline, inputs, folder, proof=proof)
    golden = read_json(folder / GOLDEN) if (folder / GOLDEN).is_file() else _golden_of(builder.device, inputs.key)
    return MadeEngine(
        key=inputs.key,
        record=record,
        seconds=round(time.monotonic() - started_s, 3),
        golden=(golden or {}) if proof is not None else {},
        is_reused=is_reused,
    )


@contextmanager
def _alone(builder: Builder) -> Iterator[None]:
    """Wait for the build that runs, if one does: it may be of this engine, and then there is nothing left to do."""
    layout = builder.device.layout
    builder.device.durable.make_dirs(layout.workshop)
    with engines_lock(layout, within_s=builder.deadline_s, stop=builder.stop) as is_taken:
        if not is_taken and builder.stop.is_set():
            raise stopped()
        if not is_taken:
            raise DeployError(
                "build.timeout",
                f"another build has not ended within {builder.deadline_s:g} s",
                hint=f"look for it: fuser -v {layout.workshop}",
            )
        yield


def _reuse(
    builder: Builder, pipeline: Pipeline, inputs: EngineInputs, folder: Path, *, proof: Path | None, proof_id: str
) -> bool:
    """Return whether the engine is here, intact, and has passed these golden frames."""
    key = inputs.key
    golden = _reusable(builder.device, key)
    if golden is None:
        return False
    if proof is None or golden.get("proof") == proof_id:
        return True
    try:
        _prove_again(builder, pipeline, inputs, folder, proof=proof)
    except DeployError as error:
        if error.code != "device.engine.damaged":
            raise
        _log.warning("engine is built anew key=%s reason=%s", key[:12], error.problem)
        _clear(folder)
        return False
    return True


def _make(
    builder: Builder, pipeline: Pipeline, inputs: EngineInputs, folder: Path, *, proof: Path | None
) -> EngineRecord:
    done = builder.run(_job(builder.device, pipeline, inputs, folder, proof=proof))
    plan = folder / PLAN
    sha256 = hashlib.sha256(read_file(plan, most_bytes=MAX_PLAN_BYTES)).hexdigest() if plan.is_file() else "nothing"
    if sha256 != done.get("plan_sha256"):
        raise DeployError("build.failed", f"the plan was not written wholly ({sha256[:12]})", hint="push it again")
    record = EngineRecord(
        inputs=inputs,
        plan_sha256=sha256,
        plan_bytes=plan.stat().st_size,
        seconds=float(done["seconds"]),
        precision=str(done["precision"]),
        report=done["report"],
    )
    (folder / BUILD).write_bytes(record.encode())
    return record


def _prove_again(builder: Builder, pipeline: Pipeline, inputs: EngineInputs, folder: Path, *, proof: Path) -> None:
    device, key = builder.device, inputs.key
    kept = KeptPlan(path=str(device.layout.engine(key) / PLAN), precision=read_record(device.engines, key).precision)
    builder.run(_job(device, pipeline, inputs, folder, proof=proof, plan=kept))


def _job(
    device: Device,
    pipeline: Pipeline,
    inputs: EngineInputs,
    folder: Path,
    *,
    proof: Path | None,
    plan: KeptPlan | None = None,
) -> Job:
    return Job(
        pipeline=str(pipeline.path),
        kind=inputs.kind,
        manifest=None if proof is None else str(proof),
        folder=str(folder),
        plan=plan,
        cache=_cache(device),
    )


def _cache(device: Device) -> str | None:
    """Return the builder's cache, if we are the builder: what somebody else writes there it could not replace."""
    try:
        is_ours = device.layout.workshop.stat().st_uid == os.geteuid()
    except OSError:
        return None
    return str(device.layout.build_cache) if is_ours else None


@contextmanager
def _folder() -> Iterator[Path]:
    """Give a folder to build in, of which nothing is left."""
    with tempfile.TemporaryDirectory(prefix="edge-build-") as name:
        yield Path(name)


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _reusable(device: Device, key: str) -> Mapping[str, Any] | None:
    """Return what the engine's golden frames say, if it is here and intact."""
    if not device.engines.has(key):
        return None
    try:
        read_plan(device.engines, key, versions_of=engine_versions)
    except DeployError as error:
        _log.warning("engine is built anew key=%s reason=%s", key[:12], error.problem)
        return None
    return _golden_of(device, key) or {}


def _golden_of(device: Device, key: str) -> Mapping[str, Any] | None:
    try:
        return json_object(device.engines.read(key, GOLDEN))
    except (DeployError, ValueError):
        return None


def _require_golden(device: Device, manifest: Manifest) -> None:
    """Read the golden frames once more: a bit that flipped since the push must not decide."""
    frames = (one for role in (Role.GOLDEN, Role.GOLDEN_IMAGE) for one in manifest.files_of(role))
    require_intact(device, manifest.release, frames)


def _read(path: Path) -> Pipeline:
    try:
        return load_pipeline(path)
    except EdgeError as error:
        raise DeployError("build.failed", error.problem, hint=error.hint) from error


def _typed_inputs(pipeline: Pipeline, proof_id: str) -> EngineInputs:
    try:
        chosen = choose_engine(pipeline)
        _log.info("engine kind=%s reason=%s", chosen.kind, chosen.reason)
        return engine_inputs(pipeline, read_model(pipeline), chosen, proof=proof_id)
    except EngineError as error:
        raise DeployError("build.kind", error.problem, hint=error.hint) from error
    except EdgeError as error:
        raise DeployError("build.failed", error.problem, hint=error.hint) from error
