"""Bounds and measured times as a section of the page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tests.bench.rooflines import CAUSES, RooflineRow

__all__ = ["ROOFLINES_TITLE", "render_rooflines"]

ROOFLINES_TITLE = "## Bounds and measured times"


def render_rooflines(rows: Sequence[RooflineRow], machines: Sequence[str]) -> Iterator[str]:
    yield ROOFLINES_TITLE
    yield ""
    yield "`edge-deploy roofline MODEL --machine this --table TABLE`: the least time of a frame by measured peaks and"
    yield "bandwidths, and the fastest of some dozens of frames, batch 1. What is lost is by layer, as a part of the"
    yield "time of all nodes; `no layer`: what the engine adds, reordering and copying. `best` is the layer nearest to"
    yield "its bound, `noise` how far the two best rounds of a roof lay apart."
    yield ""
    yield from machines
    yield f"Load average of the machine meanwhile: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    yield ""
    yield "| model | on | in | least ms | measured ms | ratio | best | noise | " + " | ".join(CAUSES) + " |"
    yield "|" + "---|" * (8 + len(CAUSES))
    for row in rows:
        lost = " | ".join(f"{row.lost[cause]:.0%}" for cause in CAUSES)
        yield (
            f"| {row.model} | {row.machine} | {row.precision} | {row.least_ms:.2f} | {row.measured_ms:.2f} "
            f"| **{row.least_ms / row.measured_ms:.2f}** | {row.fastest:.2f} | {row.noise:.0%} | {lost} |"
        )
    yield ""
