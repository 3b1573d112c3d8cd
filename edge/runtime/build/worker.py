"""The process that builds an engine and puts it to the golden gate: what kills it or hangs it harms nobody else.

Started by `edge.runtime.build.engine` with one argument, a `Job` as JSON. It leaves in the job's folder either what was
asked for and `done.json`, or `error.json`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from edge.config.load import load_pipeline
from edge.config.pipeline import Pipeline
from edge.device.engine_record import GOLDEN, MAX_PLAN_BYTES, PLAN
from edge.engine.kind import EngineRequest, Plan, load_kind
from edge.engine.pipeline_model import max_batch_of, open_model
from edge.engine.section import choose_engine
from edge.errors import DeployError, EdgeError, EngineError
from edge.model.file import ModelFile
from edge.protocols import Engine
from edge.quantize.forms import Forms
from edge.quantize.precision import ComputedPrecision, precision_of
from edge.reading import read_file
from edge.runtime.build.choice import Candidate, ChosenPlan, choose_precision
from edge.runtime.build.gate import Gate, read_gate
from edge.runtime.build.progress import ProgressFile
from edge.types import ModelSpec, Precision

__all__ = ["DONE", "ERROR", "Job", "KeptPlan", "main"]

DONE = "done.json"
ERROR = "error.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlan:
    """Where a plan lies, and what it computes in."""

    path: str
    precision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the process has to do.

    Attributes:
        pipeline: the pipeline file.
        kind: of engine; whoever gives the job has chosen it, and put it into the engine's key.
        manifest: of the release whose golden frames are to be passed; None: there are none.
        folder: where it writes.
        plan: a plan that is there already and only has to pass the gate; None: build one.
        cache: folder of what makes the next build faster; None: there is none.
    """

    pipeline: str
    kind: str
    manifest: str | None
    folder: str
    plan: KeptPlan | None = None
    cache: str | None = None

    def encode(self) -> str:
        """Return the argument."""
        return json.dumps(asdict(self))


def main(argument: str) -> int:
    """Do the job; return 0 if it is done, 1 if `error.json` says why not."""
    job = _job(argument)
    folder = Path(job.folder)
    try:
        done = _work(job, folder)
    except EdgeError as error:
        code = error.code if isinstance(error, DeployError) else "build.failed"
        evidence = error.evidence if isinstance(error, DeployError) else {}
        told = {"code": code, "problem": error.problem, "hint": error.hint, "evidence": evidence}
        (folder / ERROR).write_text(json.dumps(told), encoding="utf-8")
        return 1
    except MemoryError:
        (folder / ERROR).write_text(json.dumps({"code": "build.oom", "problem": "no memory is left"}), encoding="utf-8")
        return 1
    (folder / DONE).write_text(json.dumps(done), encoding="utf-8")
    return 0


def _job(argument: str) -> Job:
    values = json.loads(argument)
    plan = values.pop("plan")
    return Job(**values, plan=None if plan is None else KeptPlan(**plan))


def _work(job: Job, folder: Path) -> Mapping[str, Any]:
    started_s = time.monotonic()
    pipeline = load_pipeline(Path(job.pipeline))
    file, spec = open_model(pipeline)
    gate = None if job.manifest is None else read_gate(pipeline, spec, Path(job.manifest))
    maker = _Maker(pipeline, file, spec, job, gate)
    try:
        made = _again(maker, job.plan) if job.plan is not None else _anew(maker)
        candidate = made.candidate
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
        "report": made.report,
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
        self._engines: list[Engine] = []

    @cached_property
    def computed(self) -> ComputedPrecision:
        return precision_of(self.pipeline, self.spec, self._file.graph)

    @cached_property
    def _forms(self) -> Forms:
        return Forms(self.spec, self.computed.table, file=self._file)

    def build(self, precision: Precision) -> Candidate:
        request = self._request(precision)
        plan = self._kind.build(self._forms, request, on_progress=self._progress.of(precision))
        return self.load(plan, precision)

    def load(self, plan: Plan, precision: Precision) -> Candidate:
        engine = self._kind.load(plan.data, self.spec, self._request(precision))
        self._engines.append(engine)
        score = None if self.gate is None else self.gate.score(engine)
        return Candidate(precision=precision, plan=plan, engine=engine, score=score)

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def _request(self, precision: Precision) -> EngineRequest:
        return EngineRequest(
            precision=precision,
            max_batch=max_batch_of(self.pipeline),
            options=self._options,
            score_threshold=None if self.gate is None else self.gate.detector.score_threshold,
            cache_folder=self._cache,
        )


def _anew(maker: _Maker) -> ChosenPlan:
    fallback = maker.pipeline.config.model.fallback
    return choose_precision(
        maker.computed.precision,
        None if fallback is None else Precision(fallback),
        maker.build,
        gate=maker.gate,
        labels=maker.spec.labels,
    )


def _again(maker: _Maker, plan: KeptPlan) -> ChosenPlan:
    """Put a plan that is here to the gate; what it is, was decided when it was built."""
    precision, content = Precision(plan.precision), read_file(Path(plan.path), most_bytes=MAX_PLAN_BYTES)

    def load(wanted: Precision) -> Candidate:
        try:
            return maker.load(Plan(data=content), wanted)
        except EngineError as error:
            raise DeployError("device.engine.damaged", f"the engine cannot be loaded: {error.problem}") from error

    return choose_precision(precision, None, load, gate=maker.gate, labels=maker.spec.labels)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
