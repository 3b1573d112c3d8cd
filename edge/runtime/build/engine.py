"""`edge-runtime build`: an engine that was built here, from what was verified, and has passed its golden frames.

The builder reads the request, and leaves files and an answer in its own folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edge.bundle.manifest import Manifest, Role
from edge.config.pipeline import Pipeline, load_pipeline
from edge.device.device import Device
from edge.device.engines import BUILD, GOLDEN, MAX_PLAN_BYTES, PLAN, EngineInputs, EngineRecord, read_plan, read_record
from edge.device.lock import engines_lock
from edge.device.releases import MANIFEST
from edge.engine.section import choose_engine, read_model
from edge.errors import DeployError, EdgeError, EngineError
from edge.reading import read_file
from edge.runtime.build.handover import ANSWER, MADE, golden_numbers, proof_in, proof_of
from edge.runtime.build.request import BuildResult, PendingBuild, decode_result, read_request, write_progress
from edge.runtime.build.worker import Job, run_worker, stopped
from edge.runtime.serve.engine import engine_inputs
from edge.runtime.software.binding import module_command, require_intact, require_to_build
from edge.runtime.trial.soundness import engine_versions, require_files
from edge.wire.peer import problem_of
from edge.writing import write_whole

__all__ = ["Builder", "answer_request", "make_in_workshop"]

_log = logging.getLogger(__name__)
_WORKER = module_command("edge.runtime.build.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A builder, and when it has to stop.

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
            return run_worker(job, worker=self.worker, stop=self.stop, on_progress=self._tell)
        finally:
            self.device.layout.build_progress.unlink(missing_ok=True)

    def _tell(self, note: str) -> None:
        _log.info("build %s", note)
        write_progress(self.device.layout.build_progress, note)


def make_in_workshop(builder: Builder, release: str) -> BuildResult:
    """Leave the release's engine in the builder's folder, or the numbers of one that is here and has passed its frames.

    Nothing else is written: edge-deploy takes it over (`edge.runtime.build.handover`). An engine may be shared by
    releases with other golden frames: each of them has to pass its own. Raises `DeployError`: `smoke.accuracy` with the
    numbers of each class; `build.oom`, `build.timeout`, `build.stopped`, `build.failed`, `build.kind`;
    `device.release.*`.
    """
    device, folder = builder.device, builder.device.layout.workshop / MADE
    with _alone(builder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o750)
        require_to_build(device, release)
        manifest = require_files(device, release)
        # The golden frames are read once more: a bit that flipped since the push must not decide.
        require_intact(device, release, (*manifest.files_of(Role.GOLDEN), *manifest.files_of(Role.GOLDEN_IMAGE)))
        pipeline = _read(device.layout.release(release) / manifest.files_of(Role.PIPELINE)[0].path)
        return _build(builder, pipeline, folder, manifest)


def _build(builder: Builder, pipeline: Pipeline, folder: Path, manifest: Manifest) -> BuildResult:
    started_s = time.monotonic()
    device, release, proof = builder.device, manifest.release, proof_of(manifest)
    inputs = _typed_inputs(pipeline, proof)
    key = inputs.key
    job = Job(
        pipeline=str(pipeline.path),
        kind=inputs.kind,
        manifest=str(device.layout.release(release) / MANIFEST) if proof else None,
        folder=str(folder),
        cache=_cache(device),
        is_beside=device.layout.health.parent.exists(),  # the service's own folder, which goes with it
        deadline_s=builder.deadline_s,
    )
    is_reused = _reuse(builder, job, key, proof)
    record = read_record(device.engines, key) if is_reused else _make(builder, job, inputs)
    golden = None
    if proof:
        is_new = (folder / GOLDEN).is_file()
        golden = golden_numbers(read_file(folder / GOLDEN) if is_new else device.engines.read(key, GOLDEN))
    return BuildResult(
        release=release,
        key=key,
        seconds=round(time.monotonic() - started_s, 3),
        golden=golden,
        reused=is_reused,
        engine=record.line,
        precision=record.precision,
        report=dict(record.report),
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


def _reuse(builder: Builder, job: Job, key: str, proof: str) -> bool:
    """Return whether the engine is here, intact, and has passed these golden frames."""
    device, folder = builder.device, Path(job.folder)
    if not _is_intact(device, key):
        return False
    if not proof or proof_in(device, key) == proof:
        return True
    plan = device.layout.engine(key) / PLAN
    try:
        precision = read_record(device.engines, key).precision
        builder.run(replace(job, plan=str(plan), plan_precision=precision))
    except DeployError as error:
        if error.code != "device.engine.damaged":
            raise
        _log.warning("engine is rebuilt key=%s reason=%s", key[:12], error.problem)
        for path in folder.iterdir():
            path.unlink()
        return False
    return True


def _make(builder: Builder, job: Job, inputs: EngineInputs) -> EngineRecord:
    done, folder = builder.run(job), Path(job.folder)
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


def _cache(device: Device) -> str | None:
    """Return the builder's cache, if we are the builder: it could not replace what another user writes there."""
    try:
        is_ours = device.layout.workshop.stat().st_uid == os.geteuid()
    except OSError:
        return None
    return str(device.layout.build_cache) if is_ours else None


def _is_intact(device: Device, key: str) -> bool:
    if not device.engines.has(key):
        return False
    try:
        read_plan(device.engines, key, versions_of=engine_versions)
    except DeployError as error:
        _log.warning("engine is rebuilt key=%s reason=%s", key[:12], error.problem)
        return False
    return True


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


def answer_request(builder: Builder, path: Path) -> BuildResult | None:
    """Build what the request at `path` asks for, and leave the answer; None: nothing is asked that is not answered yet.

    The answer to an earlier request is taken away first, so that it is not taken for this one if this process is
    killed. The request stays: it is edge-deploy's, which takes it away with the answer (`edge.runtime.build.handover`).
    Raises `DeployError`: why there is no engine; the answer says so, too.
    """
    request, answer = read_request(path), builder.device.layout.workshop / ANSWER
    if request is None or _is_answered(answer, request):
        return None
    answer.unlink(missing_ok=True)
    try:
        result = replace(make_in_workshop(builder, request.release), id=request.id)
    except Exception as error:  # the border of this process: the answer has to be there, whatever went wrong
        problem = error if isinstance(error, DeployError) else _untyped(error)
        failure = BuildResult(release=request.release, id=request.id, problem=problem_of(problem))
        write_whole(answer, failure.encode())
        if isinstance(error, EdgeError):
            raise problem from error
        raise
    write_whole(answer, result.encode())
    return result


def _untyped(error: Exception) -> DeployError:
    problem = error.problem if isinstance(error, EdgeError) else f"internal error: {type(error).__name__}: {error}"
    return DeployError("build.failed", problem, hint="look at: journalctl -u edge-build")


def _is_answered(path: Path, request: PendingBuild) -> bool:
    try:
        answer = decode_result(read_file(path))
    except (OSError, ValueError):
        return False
    return bool(request.id) and (answer.id, answer.release) == (request.id, request.release)
