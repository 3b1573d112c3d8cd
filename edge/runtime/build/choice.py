"""Which precision a device gets: what was asked for, or its fallback where that is not good or not fast enough here.

Good is what passes the golden gate: the frames of a release, and how an engine that was built here does on them.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.bundle.manifest import GoldenLimits, Role, decode_manifest
from edge.config.pipeline import Pipeline
from edge.engine.kind import Plan
from edge.engine.section import detector_of
from edge.errors import DeployError, EngineError, ModelError, OutOfMemoryError
from edge.evaluate.golden import GoldenScore, GoldenSet, compare_golden, decode_golden, detect_golden, floor_of
from edge.media.images import read_image
from edge.protocols import Engine
from edge.reading import read_file
from edge.types import ModelSpec, Precision
from edge.vision.heads import Detector

__all__ = ["INT8_FORMS", "Candidate", "Gate", "Race", "batch_s", "choose_precision", "race", "read_gate"]

_MAX_GOLDEN_BYTES = 64 << 20  # detections of some hundred frames as text
_LEAST_PAIRS, _MOST_PAIRS = 5, 25
_ENOUGH_S = 4.0  # for all pairs; a slow engine is told from another by fewer
_log = logging.getLogger(__name__)
INT8_FORMS = "int8_forms"  # in a report: the account of their race, also where another precision is taken
_NEXT = {Precision.FP16: (Precision.FP16, Precision.FP32), Precision.FP32: (Precision.FP32,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Golden frames, uint8 (H, W, 3) RGB each, and what has to be found on them."""

    canvases: Sequence[NDArray[np.uint8]]
    golden: GoldenSet
    limits: GoldenLimits
    detector: Detector

    def score(self, engine: Engine) -> GoldenScore:
        """Score full batches against the float model. Raises `EngineError` if an inference failed."""
        found = detect_golden(self.canvases, engine, self.detector)
        expected = [one.detections for one in self.golden.images]
        return compare_golden(expected, found, sure_score=self.golden.sure_score, limits=self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Two engines timed in turn: median milliseconds for one full batch of each, and of the ratio of each pair."""

    asked_ms: float
    other_ms: float
    ratio: float
    pairs: int

    @property
    def is_asked_faster(self) -> bool:
        """Whether the one that was asked for took less time than the other in most pairs."""
        return self.ratio < 1


def read_gate(pipeline: Pipeline, spec: ModelSpec, manifest_path: Path) -> Gate:
    """Raises `DeployError`: `verify.golden`, if the frames are not those of this model; `verify.manifest.*`."""
    manifest, release = decode_manifest(read_file(manifest_path)), manifest_path.parent
    expected = release / manifest.files_of(Role.GOLDEN)[0].path
    golden = decode_golden(read_file(expected, most_bytes=_MAX_GOLDEN_BYTES, follows_links=True))
    if (golden.model_sha256, golden.preprocess_sha256) != (spec.sha256, spec.preprocess.sha256):
        raise DeployError(
            "verify.golden", "golden.json was made for another model or preprocess", hint="bundle the release again"
        )
    listed = {one.path for one in manifest.files_of(Role.GOLDEN_IMAGE)}
    if strange := [one.path for one in golden.images if one.path not in listed]:
        raise DeployError("verify.golden", f"golden.json names {strange[0][:100]!r}, which the manifest does not list")
    return Gate(
        canvases=[read_image(release / one.path) for one in golden.images],
        golden=golden,
        limits=manifest.golden,
        detector=detector_of(pipeline, spec, score_threshold=floor_of(golden.sure_score)),
    )


def race(asked: Engine, other: Engine, canvases: Sequence[NDArray[np.uint8]]) -> Race:
    """Time two engines on the same full batches of `canvases` (none: empty ones), in turn, each first as often.

    A machine that slows down meanwhile slows both. The first batch of either is not counted. Raises `EngineError` if an
    inference failed.
    """
    for engine in (asked, other):
        for row in range(engine.max_batch if canvases else 0):
            engine.canvases[0][row] = canvases[row % len(canvases)]
        batch_s(engine)
    pairs: list[tuple[float, float]] = []
    started_s = time.monotonic()
    while len(pairs) < _LEAST_PAIRS or (len(pairs) < _MOST_PAIRS and time.monotonic() - started_s < _ENOUGH_S):
        if len(pairs) % 2:
            other_s = batch_s(other)
            pairs.append((batch_s(asked), other_s))
        else:
            asked_s = batch_s(asked)
            pairs.append((asked_s, batch_s(other)))
    return Race(
        asked_ms=round(1e3 * statistics.median(one for one, _ in pairs), 3),
        other_ms=round(1e3 * statistics.median(one for _, one in pairs), 3),
        ratio=round(statistics.median(one / two for one, two in pairs), 4),
        pairs=len(pairs),
    )


def batch_s(engine: Engine) -> float:
    """Infer one full batch, and return how long that took. Raises `EngineError` if it failed."""
    began_s = time.perf_counter()
    engine.start(0, engine.max_batch)
    engine.wait(0)
    return time.perf_counter() - began_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan, the engine that was loaded from it, and how it did on the golden frames (None: there are none)."""

    precision: Precision
    plan: Plan
    engine: Engine
    score: GoldenScore | None

    @property
    def failures(self) -> tuple[str, ...]:
        return () if self.score is None else self.score.failures

    def reporting(self, **more: Any) -> Candidate:
        """Return the same with more in the report of its plan."""
        return replace(self, plan=replace(self.plan, report={**self.plan.report, **more}))


def choose_precision(
    asked: Precision,
    fallback: Precision | None,
    make: Callable[[Precision], Candidate],
    *,
    gate: Gate | None,
    labels: tuple[str, ...],
    rival: Precision | None = None,
) -> Candidate:
    """Return what was asked for if it passes the gate and is faster than the fallback, else the fallback.

    Where there was a choice, the report of its plan says why.

    Args:
        fallback: of the pipeline; None: what was asked for, or nothing.
        make: builds, loads and puts to the gate.
        gate: whose frames are inferred when the two are timed; None: empty canvases.
        rival: without a fallback, a precision that takes the place of INT8 where it passes the gate and is faster; it
            never stands in for INT8 that fails the gate or is not built.

    Raises `DeployError` `smoke.accuracy` with the numbers, if nothing passes the gate; `EngineError` if what was asked
    for cannot be built here, and there is no fallback, or memory ran out.
    """
    try:
        first = make(asked)
    except EngineError as error:
        if fallback is None or asked is not Precision.INT8 or isinstance(error, OutOfMemoryError):
            raise
        return _instead(asked, error, *_first_of(fallback, make), labels)
    if fallback is None or asked is not Precision.INT8:
        _require_passed(first, labels)
    fallback = fallback or rival
    if fallback is None or asked is not Precision.INT8:
        return first
    other, absent = _first_of(fallback, make)
    if other is None:
        _require_passed(first, labels, f"; nothing to fall back to: {absent}")
        reason = f"no fallback to hold {asked.value} against{_lacks(absent)}"
        return first.reporting(fallback={"asked": asked.value, "taken": None, "absent": absent, "reason": reason})
    return _better(first, other, absent, gate, labels)


def _better(first: Candidate, other: Candidate, absent: str, gate: Gate | None, labels: tuple[str, ...]) -> Candidate:
    """The first if it passes the gate and is faster, else the other; DeployError `smoke.accuracy` if neither passes."""
    asked, instead, lacks = first.precision.value, other.precision.value, _lacks(absent)
    told: dict[str, Any] = {"asked": asked, "other": instead}
    if absent:
        told["absent"] = absent
    if first.failures:
        told["reason"] = f"{_misses(first)}{lacks}"
        told["golden"] = None if first.score is None else first.score.as_json(labels)
    else:
        timed = race(first.engine, other.engine, () if gate is None else gate.canvases)
        told[f"{asked}_ms"], told[f"{instead}_ms"] = timed.asked_ms, timed.other_ms
        told["ratio"], told["pairs"] = timed.ratio, timed.pairs
        if timed.is_asked_faster:
            return first.reporting(fallback={**told, "taken": None})
        told["reason"] = (
            f"{asked} is not faster here: {timed.asked_ms:g} ms for a batch, {instead} {timed.other_ms:g} ms{lacks}"
        )
        if other.failures:
            told["reason"] += f", but {_misses(other)}"
            return first.reporting(fallback={**told, "taken": None})
    _log.warning("fallback taken precision=%s reason=%s", instead, told["reason"])
    _require_passed(
        other,
        labels,
        f"; nor does {asked}: {'; '.join(first.failures)}",
        hint=f"the release before goes on serving; {instead} fails, too, so calibrating again does not help: "
        "see edge-runtime doctor",
    )
    forms = {name: raced for name, raced in first.plan.report.items() if name == INT8_FORMS}
    return other.reporting(**forms, fallback={**told, "taken": instead})


def _instead(
    asked: Precision, failed: EngineError, other: Candidate | None, absent: str, labels: tuple[str, ...]
) -> Candidate:
    """Return what was built in place of what cannot be.
    Raises `DeployError` `smoke.accuracy` if that fails the gate; `EngineError` if nothing was.
    """
    if other is None:
        raise EngineError(f"{failed.problem}; nothing to fall back to: {absent}", hint=failed.hint)
    told = {"asked": asked.value, "other": other.precision.value, "taken": other.precision.value}
    told["reason"] = f"{asked.value} cannot be built here: {failed.problem}{_lacks(absent)}"
    if absent:
        told["absent"] = absent
    _log.warning("fallback taken precision=%s reason=%s", other.precision.value, told["reason"])
    _require_passed(other, labels, f"; {told['reason']}")
    return other.reporting(fallback=told)


def _first_of(fallback: Precision, make: Callable[[Precision], Candidate]) -> tuple[Candidate | None, str]:
    """Return the first precision that this machine has, `fallback` before what is more exact, and what it lacks."""
    absent: list[str] = []
    for precision in _NEXT[fallback]:
        try:
            return make(precision), "; ".join(absent)
        except (EngineError, ModelError) as error:  # not built here, or the model has no such form
            absent.append(error.problem)
    return None, "; ".join(absent)


def _lacks(absent: str) -> str:
    return f"; not here: {absent}" if absent else ""


def _misses(candidate: Candidate) -> str:
    return f"{candidate.precision.value} does not find what the float model finds: {'; '.join(candidate.failures)}"


def _require_passed(
    candidate: Candidate,
    labels: tuple[str, ...],
    more: str = "",
    *,
    hint: str = "the release before goes on serving; calibrate again, use fp16, or let it fall back: model.fallback",
) -> None:
    if candidate.failures:
        raise DeployError(
            "smoke.accuracy",
            f"the {candidate.precision.value} engine built here does not find what the float model finds: "
            f"{'; '.join(candidate.failures)}{more}",
            hint=hint,
            evidence={} if candidate.score is None else candidate.score.as_json(labels),
        )
