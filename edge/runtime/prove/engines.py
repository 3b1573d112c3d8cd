"""Steps 3, 5 and 7: what the engines of this machine stand on, and each way in which they build a model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.bundle.manifest import GoldenLimits
from edge.engine.kind import (
    EngineKind,
    EngineRequest,
    ProofForm,
    ProvingKind,
    build_and_load,
    load_kind,
    quick_kind,
    usable_kind,
)
from edge.engine.kinds import kinds
from edge.errors import EdgeError
from edge.evaluate.golden import GoldenScore, compare_golden, detect_golden, floor_of
from edge.model.inspect import inspect_model
from edge.protocols import Engine, GraphingEngine
from edge.quantize.forms import Forms
from edge.reading import available_bytes
from edge.roofline.proof import Row, Verdict
from edge.runtime.build.choice import batch_s
from edge.runtime.prove.kit import MODEL, NotHereError, Rows, forms_of, golden_canvases, held, watched
from edge.types import Detections, Precision
from edge.vision.heads import Detector, head_of

__all__ = ["cuda", "dla", "forms", "forms_of_kind"]

_BATCH, _SURE_SCORE, _IOU = 4, 0.25, 0.45
_BATCHES = 30
_LOOK_S = 0.1
_BEGIN_S = 120.0  # no form is begun after so long: those before it are to be reported, and the others have their steps


def cuda(*, is_brief: bool) -> Rows:
    """Yield what the units of the kinds of engine do, where a kind can say so."""
    found = [*_proving()]
    if not found:
        raise NotHereError("no kind of engine here has a unit of its own to be proven")
    for name, kind in found:
        why_not = kinds()[name].why_not()
        try:
            yield from kind.proofs(is_brief=is_brief)
        except EdgeError as error:
            # Where the kind is ready to run, its unit has to do so, too.
            if why_not is None:
                raise
            raise NotHereError(error.problem) from None


def _proving() -> Iterator[tuple[str, ProvingKind]]:
    for name in kinds():
        kind = load_kind(name)
        if isinstance(kind, ProvingKind):
            yield name, kind


def forms(folder: Path) -> Rows:
    """Yield how each way to build the model does, and which one this kind of board should take."""
    for kind, asked in _ready(is_beside=False):
        yield from forms_of_kind(kind, asked, folder)


def dla(folder: Path) -> Rows:
    """Yield how the model does on a unit beside the one that computes else."""
    each = [(kind, form) for kind, asked in _ready(is_beside=True) for form in asked]
    if not each:
        raise NotHereError("the machine has none")
    for kind, form in each:
        yield from forms_of_kind(kind, [form], folder)


def _ready(*, is_beside: bool) -> Iterator[tuple[EngineKind, Sequence[ProofForm]]]:
    for name, kind in _proving():
        if (why_not := kinds()[name].why_not()) is not None:
            raise NotHereError(f"{name}: {why_not}")
        yield load_kind(name), [one for one in kind.forms() if one.is_beside == is_beside]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """A form that was built, and how its engine does."""

    form: ProofForm
    batch_ms: float
    singly_ms: float | None
    score: GoldenScore


def forms_of_kind(kind: EngineKind, asked: Sequence[ProofForm], folder: Path) -> Rows:
    """Yield a row for each form as it is built, loaded, held against the float model and timed."""
    spec = inspect_model(MODEL)
    model, canvases = forms_of(spec), golden_canvases(spec)
    detector = Detector(
        head=head_of(spec), score_threshold=floor_of(_SURE_SCORE), iou_threshold=_IOU, max_detections=300
    )
    expected = _float_detections(model, canvases, detector)
    done: list[_Done] = []
    started_s = time.monotonic()
    for form in asked:
        if (took_s := time.monotonic() - started_s) > _BEGIN_S:
            yield Row(name=form.name, verdict=Verdict.WORSE, detail=f"not begun: those before it took {took_s:.0f} s")
            continue
        request = EngineRequest(precision=form.precision, max_batch=_BATCH, options=form.options, cache_folder=folder)
        try:
            with watched(lambda: available_bytes() or 0, every_s=_LOOK_S) as left:
                began_s = time.monotonic()
                plan = kind.build(model, request)
                seconds = time.monotonic() - began_s
            with closing(kind.load(plan.data, spec, request)) as engine:
                found = detect_golden(canvases, engine, detector)
                score = compare_golden(expected, found, sure_score=_SURE_SCORE, limits=GoldenLimits())
                ended = _Done(form=form, batch_ms=_batch_ms(engine), singly_ms=_singly_ms(engine), score=score)
        except EdgeError as error:
            yield Row(name=form.name, verdict=Verdict.WORSE, detail=f"is not built or does not run here: {error}")
            continue
        done.append(ended)
        yield _row(ended, seconds=seconds, low_bytes=min(left), report=plan.report)
    yield _taken(done)


def _row(done: _Done, *, seconds: float, low_bytes: int, report: Mapping[str, object]) -> Row:
    score, skipped = done.score, report.get("skipped_tactics", 0)
    singly = "" if done.singly_ms is None else f", {done.singly_ms:.2f} without a graph"
    detail = (
        f"built in {seconds:.0f} s, {low_bytes >> 20} MiB of memory left at least; {done.batch_ms:.2f} ms for a batch "
        f"of {_BATCH}{singly}; finds {score.recall:.1%} of the float model's, {score.extra_share:.1%} of its own"
        + (f"; {skipped} tactics left out for lack of memory" if skipped else "")
    )
    values = {"build_s": round(seconds, 2), "low_bytes": low_bytes, "batch_ms": done.batch_ms, "report": report}
    values["singly_ms"] = done.singly_ms
    return held(done.form.name, score.is_passed and not skipped, detail, else_=Verdict.WORSE, **values)


def _taken(done: Sequence[_Done]) -> Row:
    """Return which form this board should take: of those that find what the float model does the fastest."""
    good = sorted((one for one in done if one.score.is_passed), key=lambda one: one.batch_ms)
    if not good:
        return Row(name="form", verdict=Verdict.FAILS, detail="none is built here and finds what the float model finds")
    best = good[0]
    is_int8 = best.form.precision is Precision.INT8
    detail = f"{best.form.name} is the fastest that is right, {best.batch_ms:.2f} ms for a batch of {_BATCH}"
    return held("form", is_int8, detail, else_=Verdict.WORSE, form=best.form.name)


def _float_detections(model: Forms, canvases: Sequence[NDArray[np.uint8]], detector: Detector) -> Sequence[Detections]:
    kind = quick_kind(usable_kind())
    request = EngineRequest(precision=Precision.FP32, max_batch=_BATCH, options=kind.options_type())
    with closing(build_and_load(kind, model, request)) as engine:
        return detect_golden(canvases, engine, detector)


def _singly_ms(engine: Engine) -> float | None:
    if not isinstance(engine, GraphingEngine):
        return None
    with engine.singly():
        return _batch_ms(engine)


def _batch_ms(engine: Engine) -> float:
    return round(1e3 * statistics.median(batch_s(engine) for _ in range(_BATCHES)), 3)
