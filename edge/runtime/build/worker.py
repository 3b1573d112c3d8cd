"""The process that builds an engine and puts it to the golden gate: what kills it or hangs it harms nothing else.

Started by `run_worker` with one argument, a `Job` as JSON. It leaves in the job's folder either what was asked for and
`done.json`, or `error.json`. Whatever becomes of it, it ends within its deadline.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from edge.codec import decode, encode
from edge.config.pipeline import Pipeline, load_pipeline
from edge.deadline import Deadline
from edge.device.engines import GOLDEN, MAX_PLAN_BYTES, PLAN
from edge.engine.kind import EngineRequest, Int8Form, Plan, RacingKind, load_kind
from edge.engine.section import choose_engine, max_batch_of, open_model
from edge.errors import DeployError, EdgeError, EngineError
from edge.model.graph import ModelFile
from edge.protocols import Engine
from edge.quantize.forms import Forms
from edge.quantize.precision import ComputedPrecision, precision_of
from edge.reading import json_object, read_file
from edge.runtime.build.choice import Candidate, Gate, choose_precision, read_gate
from edge.runtime.build.int8_forms import FormRace, WinnerFile
from edge.runtime.build.request import PROGRESS, ProgressFile, read_progress
from edge.types import ModelSpec, Precision
from edge.wire.peer import Problem, error_of, problem_of

__all__ = ["DONE", "ERROR", "Job", "main", "run_worker", "stopped"]

_POLL_S = 0.1
_TOLD_BYTES = 4096
DONE = "done.json"
ERROR = "error.json"


def run_worker(
    job: Job,
    *,
    worker: Sequence[str],
    stop: threading.Event,
    on_progress: Callable[[str], None],
) -> Mapping[str, Any]:
    """Let a worker do its job, and return what it says of it; when this returns, no process of it is left.

    `worker` gets the job as its last argument; `on_progress` is told how far it says that it is, when that changes.
    Raises `DeployError`: what the worker says; `build.oom`, `build.timeout`, `build.stopped`, `build.failed`.
    """
    folder = Path(job.folder)
    with tempfile.TemporaryFile() as told:
        # A session of its own: a compiler may start processes, which have to end with it.
        process = subprocess.Popen(
            [*worker, job.encode()],
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _await(process, job, stop, on_progress)
        finally:
            _end(process)
        said = _tail(told)
    if stop.is_set():  # systemd tells the worker, too, which may end first
        raise stopped()
    if process.returncode == 0:
        return _read_json(folder / DONE)
    if (folder / ERROR).is_file():
        raise error_of(decode(Problem, _read_json(folder / ERROR), where=ERROR))
    raise _death(process.returncode, said)


def _await(
    process: subprocess.Popen[bytes], job: Job, stop: threading.Event, on_progress: Callable[[str], None]
) -> None:
    deadline, told = Deadline.after(job.deadline_s), ""
    while process.poll() is None:
        note = read_progress(Path(job.folder) / PROGRESS)
        if note and note != told:
            told = note
            on_progress(note)
        if stop.wait(_POLL_S):
            raise stopped()
        if deadline.is_over:
            raise DeployError(
                "build.timeout",
                f"the build has not ended within {job.deadline_s:g} s",
                hint="raise build_deadline_s in the device's device.toml, if the model is large",
            )


def stopped() -> DeployError:
    return DeployError("build.stopped", "the build was told to stop; nothing was changed", hint="push it again")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _death(code: int, said: str) -> DeployError:
    if code == -signal.SIGKILL:
        return DeployError(
            "build.oom",
            "the build was killed, as the system does when memory runs out",
            hint="stop other programs on the device, use a smaller batch.max_frames, or add swap",
        )
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return DeployError("build.failed", f"the build ended with {how}: {said}", hint="look at: journalctl -u edge-build")


def _tail(told: Any) -> str:
    length = told.seek(0, os.SEEK_END)
    told.seek(max(0, length - _TOLD_BYTES))
    lines = [line.strip() for line in told.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it said nothing"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json_object(read_file(path))
    except (OSError, ValueError) as error:
        raise DeployError("build.failed", f"{path.name} of the build cannot be read: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Job of the process.

    Attributes:
        pipeline: the pipeline file.
        kind: of engine, chosen before, as it is part of the engine's key.
        manifest: of the release whose golden frames are to be passed; None: there are none.
        folder: where it writes.
        plan: a plan that is there already and only has to pass the gate; None: build one.
        plan_precision: what that plan computes in.
        cache: folder of what makes the next build faster; None: there is none.
        is_beside: a service runs meanwhile.
        deadline_s: for all of it; a form of INT8 that would not be built in time is not begun.
    """

    pipeline: str
    kind: str
    manifest: str | None
    folder: str
    plan: str | None = None
    plan_precision: str = ""
    cache: str | None = None
    is_beside: bool = False
    deadline_s: float = math.inf

    def encode(self) -> str:
        return json.dumps(asdict(self))


def main(argument: str) -> int:
    """Return 0 if the job is done, 1 if `error.json` says why not."""
    job = Job(**json.loads(argument))
    folder = Path(job.folder)
    try:
        done = _work(job, folder)
    except EdgeError as error:
        typed = error if isinstance(error, DeployError) else DeployError("build.failed", error.problem, hint=error.hint)
        return _fail(folder, problem_of(typed))
    except MemoryError:
        return _fail(folder, Problem(code="build.oom", problem="no memory is left"))
    (folder / DONE).write_text(json.dumps(done), encoding="utf-8")
    return 0


def _fail(folder: Path, problem: Problem) -> int:
    (folder / ERROR).write_text(json.dumps(encode(problem)), encoding="utf-8")
    return 1


def _work(job: Job, folder: Path) -> Mapping[str, Any]:
    started_s = time.monotonic()
    pipeline = load_pipeline(Path(job.pipeline))
    file, spec = open_model(pipeline)
    gate = None if job.manifest is None else read_gate(pipeline, spec, Path(job.manifest))
    maker = _Maker(pipeline, file, spec, job, gate)
    try:
        candidate = _anew(maker) if job.plan is None else _again(maker, Path(job.plan), Precision(job.plan_precision))
        if candidate.score is not None:
            golden = candidate.score.as_json(spec.labels)
            (folder / GOLDEN).write_text(json.dumps(golden, indent=1), encoding="utf-8")
    finally:
        maker.close()
    plan = candidate.plan.data
    if job.plan is None:
        (folder / PLAN).write_bytes(plan)
    return {
        "plan_sha256": hashlib.sha256(plan).hexdigest(),
        "plan_bytes": len(plan),
        "seconds": round(time.monotonic() - started_s, 3),
        "precision": candidate.precision.value,
        "report": candidate.plan.report,
    }


class _Maker:
    """Builds and loads engines of one pipeline, puts them to the gate, and closes them in the end."""

    def __init__(self, pipeline: Pipeline, file: ModelFile, spec: ModelSpec, job: Job, gate: Gate | None) -> None:
        self.pipeline = pipeline
        self._file = file
        self.spec = spec
        self.gate = gate
        chosen = choose_engine(pipeline, kind=job.kind)
        self._kind = load_kind(chosen.kind)
        self._options = chosen.options
        self._progress = ProgressFile(Path(job.folder))
        self._cache = None if job.cache is None else Path(job.cache)
        self._is_beside = job.is_beside
        self._engines: list[Engine] = []
        self._winner = WinnerFile(self._cache, chosen.versions, is_beside=job.is_beside)
        self._deadline = Deadline.after(job.deadline_s)
        self._longest_s = 0.0

    @cached_property
    def computed(self) -> ComputedPrecision:
        return precision_of(self.pipeline, self.spec, self._file.graph)

    @cached_property
    def _forms(self) -> Forms:
        return Forms(self.spec, self.computed.table, file=self._file)

    @property
    def rival(self) -> Precision | None:
        """The precision that INT8 races against, asked for or not, on a kind where INT8 may be slower."""
        return Precision.FP16 if isinstance(self._kind, RacingKind) else None

    def build(self, precision: Precision) -> Candidate:
        """Build in a precision; of INT8 the fastest of its forms."""
        request = self._request(precision)
        forms: tuple[Int8Form, ...] = (Int8Form(name=precision.value, request=request),)
        if precision is Precision.INT8 and isinstance(self._kind, RacingKind):
            forms = self._kind.int8_forms(self._forms, request)
        race = FormRace(self._built, self._close, gate=self.gate, winner=self._winner, has_time=self._has_time)
        return race.run(forms)

    def load(self, plan: Plan, precision: Precision) -> Candidate:
        return self._loaded(plan, self._request(precision))

    def _built(self, form: Int8Form) -> Candidate:
        began_s, request = time.monotonic(), form.request
        plan = self._kind.build(self._forms, request, on_progress=self._progress.of(request.precision))
        candidate = self._loaded(plan, request)
        self._longest_s = max(self._longest_s, time.monotonic() - began_s)
        return candidate

    def _has_time(self) -> bool:
        # The one that may follow (FP16), and this one, which may take longer than those before.
        return self._deadline.left_s > 3 * self._longest_s

    def _loaded(self, plan: Plan, request: EngineRequest) -> Candidate:
        engine, precision = self._kind.load(plan.data, self.spec, request), request.precision
        self._engines.append(engine)
        score = None if self.gate is None else self.gate.score(engine)
        return Candidate(precision=precision, plan=plan, engine=engine, score=score)

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def _close(self, candidate: Candidate) -> None:
        self._engines.remove(candidate.engine)
        candidate.engine.close()

    def _request(self, precision: Precision) -> EngineRequest:
        return EngineRequest(
            precision=precision,
            max_batch=max_batch_of(self.pipeline),
            options=self._options,
            score_threshold=None if self.gate is None else self.gate.detector.score_threshold,
            cache_folder=self._cache,
            is_beside=self._is_beside,
        )


def _anew(maker: _Maker) -> Candidate:
    fallback = maker.pipeline.config.model.fallback
    return choose_precision(
        maker.computed.precision,
        None if fallback is None else Precision(fallback),
        maker.build,
        gate=maker.gate,
        labels=maker.spec.labels,
        rival=maker.rival,
    )


def _again(maker: _Maker, plan: Path, precision: Precision) -> Candidate:
    """Put a plan that is here to the gate; what it is, was decided when it was built."""
    content = read_file(plan, most_bytes=MAX_PLAN_BYTES)

    def load(wanted: Precision) -> Candidate:
        try:
            return maker.load(Plan(data=content), wanted)
        except EngineError as error:
            raise DeployError("device.engine.damaged", f"the engine cannot be loaded: {error.problem}") from error

    return choose_precision(precision, None, load, gate=maker.gate, labels=maker.spec.labels)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
