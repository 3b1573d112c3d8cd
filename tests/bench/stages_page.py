"""The figures of each stage as a section of the page."""

import os
from collections.abc import Iterable, Iterator, Mapping

from tests.bench.stages import FPS, OBJECTS, STREAMS, is_met

STAGES_TITLE = "## Interpreter time per frame"
STAGES_BUDGET_US = 200
TRACKING_BUDGET_US = 150
_OUT = 0.1  # of a core, or of all of them: less than that left is nothing
_COLUMNS = ("candidates", "whole output", "RGBA", "followed")


def render_stages(found: Mapping[str, dict]) -> Iterator[str]:
    yield STAGES_TITLE
    yield ""
    yield f"{STREAMS} RTSP cameras of {FPS} fps, 640x360, {OBJECTS} objects in each frame, each frame a message, QoS 1."
    yield "CPU time of the threads that run Python, microseconds per frame, around an engine that costs nothing."
    yield "Decoding and scaling are GStreamer's threads. `candidates`: the engine gives the cells above the score;"
    yield "`whole output`: all of a YOLOv8 head, 84 x 8400; `RGBA`: candidates, of pixels of four bytes, as a Jetson's"
    yield "scaler gives them; `followed`: candidates, with two zones and a line each."
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
    yield from _render_wall(found["wall"])


def _render_wall(wall: Mapping[str, Mapping[int, dict]]) -> Iterator[str]:
    yield f"More and more cameras of {FPS} fps in one process, to the first number that is too many. Cores: of Python's"
    yield "threads without the copying, of the whole process, and those that nobody used. `RTSP`: as above, server and"
    yield "broker on the same machine; `raw`: black pictures of GStreamer's own, converted to RGB and not decoded."
    yield ""
    yield "| cameras | asked fps | inferred fps | dropped fps | us per frame | Python | process | idle |"
    yield "|---|---|---|---|---|---|---|---|"
    for kind, runs in wall.items():
        for count, one in runs.items():
            cores = " | ".join(f"{one[name]:.2f}" for name in ("interpreter_cores", "process_cores", "idle_cores"))
            yield (
                f"| {count} {kind} | {count * FPS} | {one['fps']:.0f} | {one['dropped_fps']:.0f} "
                f"| {sum(one['stages_us'].values()):.0f} | {cores} |"
            )
    yield ""
    for kind, runs in wall.items():
        yield _wall_of(kind, runs)
    yield ""


def _wall_of(kind: str, runs: Mapping[int, dict]) -> str:
    served = [count for count, one in runs.items() if is_met(count, one)]
    most = (
        f"{kind}: one process serves {runs[served[-1]]['fps']:.0f} frames per second" if served else f"{kind}: too many"
    )
    count, last = list(runs.items())[-1]
    if count in served:
        return f"{most}; more cameras than that were not tried."
    if last["interpreter_cores"] > 1 - _OUT:
        missing = "Python, which one core runs at a time"
    elif last["idle_cores"] < _OUT * (os.cpu_count() or 1):
        missing = "the machine's cores"
    else:
        missing = "neither Python nor cores"
    return f"{most}; of {count} cameras' frames some were lost: what ran out is {missing}."


def with_section(text: str, title: str, lines: Iterable[str]) -> str:
    """Return the page with a section in place of the one of that title, or at its end."""
    before, _, rest = text.partition(title)
    after = rest.partition("\n## ")[2]
    section = "\n".join(lines)
    return f"{before.rstrip()}\n\n{section}" + (f"\n## {after}" if after else "")
