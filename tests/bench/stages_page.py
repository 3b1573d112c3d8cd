"""The figures of each stage as a section of the page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from tests.bench.stages import FPS, OBJECTS, STREAMS

__all__ = ["STAGES_TITLE", "render_stages", "with_section"]

STAGES_TITLE = "## Interpreter time per frame"
STAGES_BUDGET_US = 200
TRACKING_BUDGET_US = 150
_COLUMNS = ("candidates", "whole output", "followed")


def render_stages(found: Mapping[str, dict]) -> Iterator[str]:
    yield STAGES_TITLE
    yield ""
    yield f"{STREAMS} RTSP cameras of {FPS} fps, 640x360, {OBJECTS} objects in each frame, each frame a message, QoS 1."
    yield "CPU time of the threads that run Python, microseconds per frame, around an engine that costs nothing."
    yield "Decoding and scaling are GStreamer's threads. `candidates`: the engine gives the cells above the score;"
    yield "`whole output`: all of a YOLOv8 head, 84 x 8400; `followed`: candidates, with two zones and a line each."
    yield ""
    yield "| stage | " + " | ".join(_COLUMNS) + " |"
    yield "|---|" + "---|" * len(_COLUMNS)
    for stage in found[_COLUMNS[0]]["stages_us"]:
        yield f"| {stage} | " + " | ".join(f"{found[one]['stages_us'][stage]:.1f}" for one in _COLUMNS) + " |"
    sums = [sum(found[one]["stages_us"].values()) for one in _COLUMNS]
    yield "| **together** | " + " | ".join(f"**{one:.0f}**" for one in sums) + " |"
    yield "| GStreamer's threads | " + " | ".join(f"{found[one]['others_us']:.0f}" for one in _COLUMNS) + " |"
    yield "| frames per second | " + " | ".join(f"{found[one]['fps']:.0f}" for one in _COLUMNS) + " |"
    yield ""
    following = found["followed"]["stages_us"]["publish call"] - found["candidates"]["stages_us"]["publish call"]
    yield (
        f"Budget: {STAGES_BUDGET_US} us together. Following objects takes {following:.0f} us of {TRACKING_BUDGET_US}, "
        "its messages included."
    )
    load = os.getloadavg()[0]
    yield f"Load average of the machine meanwhile: {load:.1f} on {os.cpu_count()} cores; each wake-up costs more then."
    idle = 100 * found["idle"]["pulling_share"] / STREAMS
    yield f"A camera of one frame per second costs its reader {idle:.2f} % of a core."
    yield ""


def with_section(text: str, title: str, lines: Iterable[str]) -> str:
    """Return the page with a section in place of the one of that title, or at its end."""
    before, _, rest = text.partition(title)
    after = rest.partition("\n## ")[2]
    section = "\n".join(lines)
    return f"{before.rstrip()}\n\n{section}" + (f"\n## {after}" if after else "")
