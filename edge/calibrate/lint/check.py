"""All checks together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edge.calibrate.lint.against_model import lint_against_model
from edge.calibrate.lint.facts import ModelFacts, largest_input
from edge.calibrate.lint.finding import Finding, Severity
from edge.calibrate.lint.ranges import lint_ranges
from edge.calibrate.table import CalibrationTable
from edge.types import ImageSize, Preprocess

__all__ = ["lint_table"]

_USUAL_INPUTS = ("images", "image", "input", "input.1", "data", "x")
_TOO_LARGE = 1.05  # a histogram rounds up a little; nothing else makes more than the largest pixel
_CLIPPED = 0.8
_TOO_SMALL = 0.2  # not one pixel brighter than 51 of 255, in any image: nothing could be seen on them


def lint_table(table: CalibrationTable, facts: ModelFacts | None) -> tuple[Finding, ...]:
    """Return what is wrong with `table`, errors first.

    Args:
        facts: of the model that it is to be used with; None leaves out what cannot be known then.
    """
    findings = [*lint_ranges(table, facts), *_input_range(table, facts)]
    if facts is not None:
        findings += lint_against_model(table, facts)
    findings += _unbound(table)
    return tuple(sorted(findings, key=lambda finding: finding.severity is not Severity.ERROR))


def _unbound(table: CalibrationTable) -> Iterator[Finding]:
    if table.model is None:
        yield Finding(
            severity=Severity.WARNING,
            code="unbound",
            problem="the table does not say which model it is of",
            fix="import it with --model, then a table of another export is noticed",
        )


def _input_range(table: CalibrationTable, facts: ModelFacts | None) -> Iterator[Finding]:
    if facts is not None:
        name: str | None = facts.input_name
        preprocess: Preprocess | None = facts.preprocess
    else:
        name = next((usual for usual in _USUAL_INPUTS if usual in table.tensors), None)
        preprocess = _read(table.preprocess)
    if name is None or preprocess is None or name not in table.tensors or not table.tensors[name].is_usable:
        return
    amax, expected = table.tensors[name].amax, largest_input(preprocess)
    ratio = amax / expected
    if _CLIPPED <= ratio <= _TOO_LARGE:
        return
    is_error = not _TOO_SMALL <= ratio <= _TOO_LARGE
    yield Finding(
        severity=Severity.ERROR if is_error else Severity.WARNING,
        code="input-range",
        problem=f'input "{name}" has range {amax:.4g}, pixels become at most {expected:.4g}: {_guess(ratio)}',
        fix="calibrate with the model's own preprocess (edge-deploy inspect shows it)",
        tensors=(name,),
    )


def _guess(ratio: float) -> str:
    if 200 < ratio < 300:
        return "about 255 times too large, the images were not divided by 255"
    if 200 < 1 / ratio < 300:
        return "about 255 times too small, the images were divided by 255 where the model wants 0 to 255"
    if ratio > 1:
        return f"{ratio:.3g} times too large, mean, std or scale were others"
    return f"only {ratio:.1%} of it, other normalisation, dark images, or hard clipping"


def _read(content: Mapping[str, Any] | None) -> Preprocess | None:
    """Return the part of a table's preprocess that the range of the input depends on."""
    if content is None:
        return None
    try:
        return Preprocess(
            size=ImageSize(width=1, height=1),
            scale=float(content["scale"]),
            mean=(content["mean"][0], content["mean"][1], content["mean"][2]),
            std=(content["std"][0], content["std"][1], content["std"][2]),
        )
    except (KeyError, IndexError, TypeError, ValueError):
        return None  # of another version; comparing with the model tells that
