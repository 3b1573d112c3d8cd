"""The process that builds an engine and puts it to the golden gate: what kills it or hangs it harms nobody else.

Started by `edge.runtime.engine_build` with one argument, a `Job` as JSON. It leaves in the job's folder either what was
asked for and `done.json`, or `error.json`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge.bundle.manifest import Manifest, Role, decode_manifest
from edge.config.load import Pipeline, load_pipeline
from edge.device.engine_record import GOLDEN, PLAN
from edge.engine.pipeline_model import detector_of, max_batch_of, read_model
from edge.engine.select import make_engine, make_plan
from edge.errors import DeployError, EdgeError
from edge.evaluate.golden import compare_golden, floor_of
from edge.evaluate.golden_file import decode_golden
from edge.evaluate.golden_run import detect_golden
from edge.media.images import read_image
from edge.protocols import Engine
from edge.runtime.arithmetic import choose_arithmetic
from edge.types import ModelSpec, Precision

__all__ = ["DONE", "ERROR", "Job", "main"]

DONE = "done.json"
ERROR = "error.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the process has to do.

    Attributes:
        pipeline: the pipeline file.
        manifest: of the release whose golden frames are to be passed; None: there are none.
        folder: where it writes.
        plan: a plan that is there already and only has to pass the gate; None: build one.
    """

    pipeline: str
    manifest: str | None
    folder: str
    plan: str | None = None

    def encode(self) -> str:
        """Return the argument."""
        return json.dumps(asdict(self))


def main(argument: str) -> int:
    """Do the job; return 0 if it is done, 1 if `error.json` says why not."""
    job = Job(**json.loads(argument))
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


def _work(job: Job, folder: Path) -> Mapping[str, Any]:
    started_s = time.monotonic()
    pipeline = load_pipeline(Path(job.pipeline))
    spec = read_model(pipeline)
    if job.plan is None:
        plan = make_plan(spec, pipeline.config.engine, content=choose_arithmetic(pipeline, spec).model)
        (folder / PLAN).write_bytes(plan)
    else:
        plan = Path(job.plan).read_bytes()
    engine = make_engine(
        spec,
        pipeline.config.engine,
        precision=Precision(pipeline.config.model.precision),
        max_batch=max_batch_of(pipeline),
        content=plan,
    )
    seconds = time.monotonic() - started_s
    try:
        if job.manifest is not None:
            manifest = decode_manifest(Path(job.manifest).read_bytes())
            golden = _pass_gate(pipeline, spec, engine, manifest, Path(job.manifest).parent)
            (folder / GOLDEN).write_text(json.dumps(golden, indent=1), encoding="utf-8")
    finally:
        engine.close()
    return {"plan_sha256": hashlib.sha256(plan).hexdigest(), "plan_bytes": len(plan), "seconds": round(seconds, 3)}


def _pass_gate(
    pipeline: Pipeline, spec: ModelSpec, engine: Engine, manifest: Manifest, release: Path
) -> Mapping[str, Any]:
    """Return the gate's numbers.

    Raises:
        DeployError: `smoke.accuracy` with the numbers; `verify.golden` if the frames are not those of this model.
    """
    golden = decode_golden((release / manifest.files_of(Role.GOLDEN)[0].path).read_bytes())
    if (golden.model_sha256, golden.preprocess_sha256) != (spec.sha256, spec.preprocess.sha256):
        raise DeployError(
            "verify.golden", "golden.json was made for another model or preprocess", hint="bundle the release again"
        )
    listed = {one.path for one in manifest.files_of(Role.GOLDEN_IMAGE)}
    if strange := [one.path for one in golden.images if one.path not in listed]:
        raise DeployError("verify.golden", f"golden.json names {strange[0][:100]!r}, which the manifest does not list")
    detector = detector_of(pipeline, spec, score_threshold=floor_of(golden.sure_score))
    canvases = [read_image(release / one.path) for one in golden.images]
    found = detect_golden(canvases, engine, detector)
    score = compare_golden(
        [one.detections for one in golden.images], found, sure_score=golden.sure_score, limits=manifest.golden
    )
    numbers = score.as_json(spec.labels)
    if not score.is_passed:
        raise DeployError(
            "smoke.accuracy",
            f"the engine built here does not find what the float model finds: {'; '.join(score.failures)}",
            hint="the release before goes on serving; calibrate again, or use fp16",
            evidence=numbers,
        )
    return numbers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
