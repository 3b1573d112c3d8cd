"""Findings that need the model: is the table of it, of its preprocess, and of all its tensors."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence

from edge.calibrate.lint.facts import ModelFacts
from edge.calibrate.lint.finding import Finding, Severity, named
from edge.calibrate.table import CalibrationTable

__all__ = ["lint_against_model"]

_NEAREST_SHOWN = 3
_OF_THE_PARSER = ("(Unnamed Layer*", "ONNXTRT_")  # tensors that TensorRT itself adds while it reads the ONNX
_SEEN_AN_OBJECT = 0.2


def lint_against_model(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    """Yield where table and model do not fit."""
    yield from _identity(table, facts)
    yield from _preprocess(table, facts)
    yield from _coverage(table, facts)
    yield from _unknown(table, facts)
    yield from _keep_float(table, facts)
    yield from _scores(table, facts)


def _identity(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    if table.model is not None and table.model.sha256 != facts.sha256:
        made_for = f"{table.model.name} {table.model.sha256[:12]}"
        yield Finding(
            severity=Severity.ERROR,
            code="other-model",
            problem=f"made for model {made_for}, this model is {facts.name} {facts.sha256[:12]}",
            fix="calibrate this model; another export, or a simplified one, has other tensors",
        )


def _preprocess(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    if table.preprocess is None or table.preprocess_sha256 == facts.preprocess.sha256:
        return
    expected = facts.preprocess.as_json()
    differing = [key for key in sorted(expected.keys() | table.preprocess) if _differs(key, expected, table.preprocess)]
    shown = ", ".join(f"{key} {table.preprocess.get(key)} (model: {expected.get(key)})" for key in differing)
    yield Finding(
        severity=Severity.ERROR,
        code="other-preprocess",
        problem=f"made with another preprocess than the model's: {shown}",
        fix="calibrate again: ranges of other pixels are other ranges",
    )


def _differs(key: str, one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return one.get(key) != other.get(key)


def _coverage(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    missing = [name for name in facts.activations if name not in table.tensors]
    if not missing:
        return
    kept = set(table.keep_float)
    needed = {name for node in facts.weighted if node.name not in kept for name in node.inputs}
    found = len(facts.activations) - len(missing)
    numbers = f"{found} of {len(facts.activations)} tensors ({found / len(facts.activations):.1%})"
    lost = [name for name in missing if name in needed]
    if lost:
        yield Finding(
            severity=Severity.ERROR,
            code="coverage",
            problem=f"covers {numbers}; convolutions or matrix products that read {named(lost)} would run in float"
            + _nearest(lost, table, facts),
            fix="calibrate this very file, or name the nodes in keep_float",
            tensors=tuple(missing),
        )
    else:
        yield Finding(
            severity=Severity.WARNING,
            code="coverage",
            problem=f"covers {numbers}; {named(missing)} have no range" + _nearest(missing, table, facts),
            fix="nothing to do unless the DLA is used, which wants all; the layers around them stay in float",
            tensors=tuple(missing),
        )


def _nearest(missing: Sequence[str], table: CalibrationTable, facts: ModelFacts) -> str:
    """Return which names of the table, that the model does not know, come closest to some that are missing."""
    spare = sorted(set(table.tensors) - set(facts.activations))
    pairs = ((name, difflib.get_close_matches(name, spare, n=1, cutoff=0.5)) for name in missing[:_NEAREST_SHOWN])
    shown = ", ".join(f'"{near[0]}" for "{name}"' for name, near in pairs if near)
    return f" (the table has {shown})" if shown else ""


def _unknown(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    unknown = [name for name in sorted(table.tensors) if name not in facts.tensors]
    foreign = _of_other_networks(unknown, facts)
    unknown = [name for name in unknown if name not in foreign and not name.startswith(_OF_THE_PARSER)]
    if foreign:
        yield Finding(
            severity=Severity.ERROR,
            code="other-network",
            problem=f"{len(foreign)} tensors are named like convolutions or matrix products of {facts.name}, which has "
            f"none of that name: {named(foreign)}",
            fix="the table is of a deeper network, or of another export of this one; calibrate this very file",
            tensors=tuple(foreign),
        )
    if unknown:
        yield Finding(
            severity=Severity.WARNING,
            code="unknown-tensors",
            problem=f"{len(unknown)} tensors are not in the model: {named(unknown)}",
            fix="harmless where TensorRT made them; else the table is of another export",
            tensors=tuple(unknown),
        )


def _of_other_networks(unknown: Sequence[str], facts: ModelFacts) -> list[str]:
    """Return the names that only differ in their numbers from outputs of this model's weighted nodes.

    No tool that simplifies a model takes those away, and no parser adds any; of other operators both is usual.
    """
    kinds = {_kind_of_name(name) for name in facts.weighted_outputs}
    return [name for name in unknown if _kind_of_name(name) in kinds]


def _kind_of_name(tensor: str) -> str:
    return re.sub(r"\d+", "#", tensor)


def _keep_float(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    unknown = [name for name in table.keep_float if name not in facts.node_names]
    if unknown:
        yield Finding(
            severity=Severity.ERROR,
            code="unknown-nodes",
            problem=f"keep_float names nodes that the model does not have: {named(unknown)}",
            fix="they would run in INT8 unnoticed; take the names from this very file",
        )


def _scores(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    ranges = [table.tensors[name].amax for name in facts.scores if name in table.tensors]
    if ranges and max(ranges) < _SEEN_AN_OBJECT:
        yield Finding(
            severity=Severity.WARNING,
            code="random-looking",
            problem=f"the largest score in all calibration images was {max(ranges):.3g}: no object was seen, as with "
            "random data",
            fix="calibrate with images of what the cameras will see, normalised as the model expects",
        )
