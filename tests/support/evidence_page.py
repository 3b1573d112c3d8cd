"""The tables of docs/capacity.md, as they follow from edge/capacity/evidence.yaml; this module prints them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from edge.capacity.evidence import evidence, factors_of, left_one_out

__all__ = ["evidence_lines", "rest_lines"]


def evidence_lines() -> Iterator[str]:
    """Yield a row for each measured engine, with how far the others are off."""
    rows = evidence().engine
    yield "| model | in | batch | machine | measured ms | `least` | of it | by all others | error |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row, error in zip(rows, left_one_out(rows), strict=True):
        yield (
            f"| {row.model} {row.size_px} | {row.precision.value.upper()} | {row.batch} | {row.machine} | "
            f"{row.batch_ms:.2f} | {row.least_ms:.2f} | {row.efficiency:.0%} | {row.batch_ms * (1 + error):.2f} | "
            f"{error:+.0%} |"
        )


def rest_lines() -> Iterator[str]:
    """Yield the factors, and the errors in sum."""
    rows = evidence().engine
    found = factors_of(rows)
    yield f"**{found.of_least:.2f} times `least`, and {1e6 * found.layer_s:.1f} us for each layer.**"
    for what, is_whole_model in (("figure", False), ("model", True)):
        errors = [abs(error) for error in left_one_out(rows, is_whole_model=is_whole_model)]
        yield (
            f"- one {what} left out: {statistics.mean(errors):.0%} off on average, {statistics.median(errors):.0%} in "
            f"the middle, {max(errors):.0%} at worst"
        )


if __name__ == "__main__":
    print("\n".join((*evidence_lines(), "", *rest_lines())))
