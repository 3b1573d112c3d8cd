"""Findings that need the table alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator

from edge.calibrate.lint.facts import ModelFacts
from edge.calibrate.lint.finding import Finding, Severity, named
from edge.calibrate.table import CalibrationTable, TensorRange

__all__ = ["lint_ranges"]

_LARGEST_FLOAT16 = 65504.0
_SMALLEST_FLOAT16 = 2.0**-24  # TensorRT's calibrators write 2^-23 for what was always zero
_ZERO = "zero"
_FEW = 8  # tensors: below, equal ranges say nothing
_EQUAL_SHARE = 0.6


def lint_ranges(table: CalibrationTable, facts: ModelFacts | None) -> Iterator[Finding]:
    """Yield what is wrong with the ranges themselves.

    Args:
        table: whose ranges they are.
        facts: of the model; None leaves out what cannot be known then. TensorRT writes 0 for constants, too, and what
            is next to nothing may be one: both are wrong only where the model computes that tensor.
    """
    computed = frozenset(table.tensors if facts is None else facts.activations)
    yield from _unusable(table, computed, is_model_known=facts is not None)
    yield from _tiny(table, computed)
    yield from _placeholders(table)
    yield from _means(table)
    large = [name for name, tensor in table.tensors.items() if _LARGEST_FLOAT16 < tensor.amax < math.inf]
    if large:
        yield Finding(
            severity=Severity.WARNING,
            code="beyond-float16",
            problem=f"{named(large)}: ranges above {_LARGEST_FLOAT16:.0f} overflow where a layer falls back to float16",
            fix="look at the layer in front, and keep it in float32",
            tensors=tuple(large),
        )


def _unusable(table: CalibrationTable, computed: Collection[str], *, is_model_known: bool) -> Iterator[Finding]:
    if not table.tensors:
        yield Finding(
            severity=Severity.ERROR, code="empty", problem="the table has no tensor", fix="calibrate or import again"
        )
    kinds: dict[str, list[str]] = {}
    for name, tensor in table.tensors.items():
        kind = _kind(tensor.scale.value)
        if not tensor.is_usable and (kind != _ZERO or name in computed):
            kinds.setdefault(kind, []).append(name)
    for kind, names in kinds.items():
        problem, fix = _REASONS[kind]
        is_open = kind == _ZERO and not is_model_known and table.imported is not None
        if is_open:
            problem, fix = _OPEN_ZERO
        yield Finding(
            severity=Severity.WARNING if is_open else Severity.ERROR,
            code=f"{kind}-scale",
            problem=f"{named(names)}: {problem}",
            fix=fix,
            tensors=tuple(names),
        )


def _tiny(table: CalibrationTable, computed: Collection[str]) -> Iterator[Finding]:
    tiny = {name: one.amax for name, one in table.tensors.items() if name in computed and _is_tiny(one)}
    if tiny:
        smallest = min(tiny.values())
        yield Finding(
            severity=Severity.ERROR,
            code="tiny-scale",
            problem=f"{named(list(tiny))}: range {smallest:.3g} is less than the smallest float16, "
            f"{_SMALLEST_FLOAT16:.3g}; no activation is that small, and every larger value would be clipped to it",
            fix="digits were lost on the way, or the tensor was zero: copy or calibrate again, or remove it from the "
            "table, which keeps it in float",
            tensors=tuple(tiny),
        )


def _is_tiny(tensor: TensorRange) -> bool:
    return tensor.is_usable and tensor.amax < _SMALLEST_FLOAT16


def _means(table: CalibrationTable) -> Iterator[Finding]:
    wrong = [name for name, tensor in table.tensors.items() if not all(map(math.isfinite, tensor.means))]
    if wrong:
        yield Finding(
            severity=Severity.ERROR,
            code="means",
            problem=f"{named(wrong)}: means of channels that are no finite numbers make biases that are none",
            fix="calibrate again, or remove the means",
            tensors=tuple(wrong),
        )


def _kind(scale: float) -> str:
    if math.isnan(scale):
        return "nan"
    if math.isinf(scale):
        return "infinite"
    return "negative" if scale < 0 else _ZERO


_OPEN_ZERO = (
    "the scale is 0; TensorRT writes that for constants, which do not matter, and for what was always zero, which does",
    "say with --model which model it is of: only what that one computes counts",
)
_REASONS = {
    _ZERO: (
        "the scale is 0, so every value would become 0; the tensor was zero in all calibration images",
        "calibrate with more images, or remove it from the table, which keeps it in float",
    ),
    "infinite": (
        "the scale is infinite; the float model overflowed while it was calibrated",
        "calibrate in float32, not float16, or remove it from the table, which keeps it in float",
    ),
    "nan": (
        "the scale is not a number; the calibration was broken",
        "calibrate again in float32; an image or the model gives NaN",
    ),
    "negative": (
        "the scale is negative; the largest value was taken where the largest absolute value is meant",
        "calibrate again; some writers confuse the two (see calib_cache/README.md)",
    ),
}


def _placeholders(table: CalibrationTable) -> Iterator[Finding]:
    usable = [tensor.amax for tensor in table.tensors.values() if tensor.is_usable]
    if len(usable) < _FEW:
        return
    amax, times = Counter(usable).most_common(1)[0]
    if times >= _EQUAL_SHARE * len(usable):
        yield Finding(
            severity=Severity.ERROR,
            code="placeholder-ranges",
            problem=f"{times} of {len(usable)} tensors have the same range {amax:.6g}: nobody measured them",
            fix="calibrate with real images; tools that only time engines fill in constants",
        )
