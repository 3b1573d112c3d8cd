"""Predicted and true numbers of live streams as a section of the page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tests.bench.capacity import HEADROOM, MOST_LOST, CapacityRow, Window

__all__ = ["CAPACITY_TITLE", "render_capacity"]

CAPACITY_TITLE = "## Live streams, predicted and found"


def render_capacity(rows: Sequence[CapacityRow], *, seconds: float) -> Iterator[str]:
    yield CAPACITY_TITLE
    yield ""
    yield "`edge-deploy capacity PIPELINE --machine this --headroom 0`, against the greatest number of streams of which"
    yield f"`edge-runtime run` loses at most {MOST_LOST:.1%} of the frames in {seconds:g} s once it is warm, and"
    yield "decodes them in time. Clips played at their own pace; batches of up to 8, INT8, each frame a message. What"
    yield "lost a little too much had a second try; `beyond` is the next number, in that last try."
    yield f"Load average of the machine meanwhile: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    yield ""
    yield (
        f"| model | streams of | predicted | found | error | predicted with {HEADROOM:.0%} headroom | of the found "
        "| runs out, as predicted | found: cores | beyond: lost | decoded in time | cores |"
    )
    yield "|" + "---|" * 12
    for row in rows:
        found = 0 if row.found is None else row.found.streams
        error = f"{row.predicted / found - 1:+.0%}" if found else "?"
        share = f"{row.predicted_with_headroom / found:.0%}" if found else "?"
        yield (
            f"| {row.model} | {row.video} | {row.predicted} | **{found}** | {error} | {row.predicted_with_headroom} "
            f"| {share} | {row.runs_out} | {'?' if row.found is None else f'{row.found.cores:.2f}'} "
            f"| {_lost(row.beyond)} | {row.beyond.rate:.0%} | {row.beyond.cores:.2f} |"
        )
    yield ""


def _lost(window: Window) -> str:
    reasons = ", ".join(f"{reason} {count / max(window.decoded, 1):.1%}" for reason, count in window.lost.most_common())
    return f"{window.streams}: {reasons or 'none'}"
