"""The evidence of docs/sizing.md, as it follows from edge/capacity/evidence.yaml; this module prints it."""

import statistics
from collections.abc import Iterator

from edge.capacity.platform import evidence, factors_of


def left_one_out(rows, *, is_whole_model=False):
    """Return of each row how far the others are off: predicted / measured - 1.

    `is_whole_model`: leave out all rows of its model, so that nothing of it is known.
    """
    errors = []
    for row in rows:
        others = [one for one in rows if one is not row and not (is_whole_model and one.model == row.model)]
        found = factors_of(others).batch_s(row.least_ms / 1e3, row.layers)
        errors.append(1e3 * found / row.batch_ms - 1)
    return errors


def evidence_lines() -> Iterator[str]:
    """Yield a row for each measured engine, with how far the others are off."""
    rows = evidence().engine
    yield "| model | in | batch | machine | measured ms | `least` | of it | by all others | error |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row, error in zip(rows, left_one_out(rows), strict=True):
        yield (
            f"| {row.model} {row.size_px} | {row.precision.value.upper()} | {row.batch} | {row.machine} | "
            f"{row.batch_ms:.2f} | {row.least_ms:.2f} | {row.least_ms / row.batch_ms:.0%} | "
            f"{row.batch_ms * (1 + error):.2f} | {error:+.0%} |"
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
