"""Which precision a device gets: what was asked for, or its fallback where that is not good or not fast enough here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edge.engine.kind import Plan
from edge.errors import DeployError, EngineError, ModelError
from edge.evaluate.golden import GoldenScore
from edge.protocols import Engine
from edge.runtime.build.gate import Gate, Race, race
from edge.types import Precision

__all__ = ["Candidate", "ChosenPlan", "choose_precision"]

_log = logging.getLogger(__name__)
_NEXT = {Precision.FP16: (Precision.FP16, Precision.FP32), Precision.FP32: (Precision.FP32,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan, the engine that was loaded from it, and how it did on the golden frames (None: there are none)."""

    precision: Precision
    plan: Plan
    engine: Engine
    score: GoldenScore | None

    @property
    def failures(self) -> tuple[str, ...]:
        """The limits that it breaks."""
        return () if self.score is None else self.score.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPlan:
    """What a device gets; `report` is that of the plan, and of the choice where there was one."""

    candidate: Candidate
    report: Mapping[str, Any]


def choose_precision(
    asked: Precision,
    fallback: Precision | None,
    make: Callable[[Precision], Candidate],
    *,
    gate: Gate | None,
    labels: tuple[str, ...],
) -> ChosenPlan:
    """Return what was asked for if it passes the gate and is faster than the fallback, else the fallback.

    Args:
        asked: by the pipeline.
        fallback: the same; None: what was asked for, or nothing.
        make: builds, loads and puts to the gate.
        gate: whose frames are inferred when the two are timed; None: empty canvases.
        labels: of the model, for the evidence of a refusal.

    Raises:
        DeployError: `smoke.accuracy` with the numbers, if nothing passes the gate.
        EngineError: if what was asked for cannot be built here.
    """
    first = make(asked)
    if fallback is None or asked is not Precision.INT8:
        return ChosenPlan(candidate=_passed(first, labels), report=first.plan.report)
    other, absent = _first_of(fallback, make)
    lacks = f"; not here: {absent}" if absent else ""
    if other is None:
        if first.failures:
            raise _refusal(first, labels, f"; nothing to fall back to: {absent}")
        reason = f"no fallback to hold {asked.value} against{lacks}"
        return _told(first, {"asked": asked.value, "taken": None, "absent": absent, "reason": reason})
    told: dict[str, Any] = {"asked": asked.value, "other": other.precision.value}
    if absent:
        told["absent"] = absent
    if first.failures:
        told["reason"] = f"{_misses(first)}{lacks}"
        told["golden"] = None if first.score is None else first.score.as_json(labels)
    else:
        timed = race(first.engine, other.engine, () if gate is None else gate.canvases)
        told |= _times(timed, asked, other.precision)
        if timed.is_asked_faster:
            return _told(first, {**told, "taken": None})
        told["reason"] = (
            f"{asked.value} is not faster here: {timed.asked_ms:g} ms for a batch, {other.precision.value} "
            f"{timed.other_ms:g} ms{lacks}"
        )
        if other.failures:
            return _told(first, {**told, "taken": None, "reason": f"{told['reason']}, but {_misses(other)}"})
    _log.warning("fallback taken precision=%s reason=%s", other.precision.value, told["reason"])
    if other.failures:
        raise _neither(first, other, labels)
    return _told(other, {**told, "taken": other.precision.value})


def _first_of(fallback: Precision, make: Callable[[Precision], Candidate]) -> tuple[Candidate | None, str]:
    """Return the first precision that this machine has, `fallback` before what is more exact, and what it lacks."""
    absent: list[str] = []
    for precision in _NEXT[fallback]:
        try:
            return make(precision), "; ".join(absent)
        except (EngineError, ModelError) as error:  # not built here, or the model has no such form
            absent.append(error.problem)
    return None, "; ".join(absent)


def _told(candidate: Candidate, choice: Mapping[str, Any]) -> ChosenPlan:
    return ChosenPlan(candidate=candidate, report={**candidate.plan.report, "fallback": choice})


def _times(timed: Race, asked: Precision, other: Precision) -> dict[str, Any]:
    return {
        f"{asked.value}_ms": timed.asked_ms,
        f"{other.value}_ms": timed.other_ms,
        "ratio": timed.ratio,
        "pairs": timed.pairs,
    }


def _passed(candidate: Candidate, labels: tuple[str, ...]) -> Candidate:
    if candidate.failures:
        raise _refusal(candidate, labels, "")
    return candidate


def _misses(candidate: Candidate) -> str:
    return f"{candidate.precision.value} does not find what the float model finds: {'; '.join(candidate.failures)}"


def _neither(first: Candidate, other: Candidate, labels: tuple[str, ...]) -> DeployError:
    both = f"; nor does {first.precision.value}: {'; '.join(first.failures)}"
    refusal = _refusal(other, labels, both)
    hint = (
        f"the release before goes on serving; {other.precision.value} fails, too, so calibrating again does not help: "
        "see edge-runtime doctor"
    )
    return DeployError(refusal.code, refusal.problem, hint=hint, evidence=refusal.evidence)


def _refusal(candidate: Candidate, labels: tuple[str, ...], more: str) -> DeployError:
    return DeployError(
        "smoke.accuracy",
        f"the {candidate.precision.value} engine built here does not find what the float model finds: "
        f"{'; '.join(candidate.failures)}{more}",
        hint="the release before goes on serving; calibrate again, use fp16, or let it fall back: model.fallback",
        evidence={} if candidate.score is None else candidate.score.as_json(labels),
    )
