"""The live table of a run on a terminal: one row per camera, redrawn about once a second."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Group
from rich.live import Live

from edge.cli.output import make_table, stderr_console
from edge.runtime.pipeline.counters import RunReport

__all__ = ["live_table", "run_table"]


@contextlib.contextmanager
def live_table(*, is_wanted: bool) -> Iterator[tuple[Callable[[RunReport], None], Callable[[], None]]]:
    """Give what shows an account on stderr, in place of the one before, and removes it; none without a terminal.

    Remove it before anything is written below it, or its rows are taken back from that.
    """
    console = stderr_console()
    if not (is_wanted and console.is_terminal):
        yield lambda report: None, lambda: None
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda report: live.update(run_table(report), refresh=live.is_started), live.stop


def run_table(report: RunReport) -> Group:
    """Return an account as a line of sums over a table of cameras."""
    content = report.as_json()
    total = content["stages_ms"]["total"]
    rows = [
        (stream["id"], stream["state"], f"{stream['fps']:.1f}", str(stream["inferred"]), str(stream["detections"]))
        for stream in content["streams"]
    ]
    delivered = sum(output["delivered"] for output in content["published"].values())
    title = (
        f"{content['seconds']:.0f} s   {content['fps']:.1f} fps   latency p50 {total['p50']:.0f} ms, "
        f"p95 {total['p95']:.0f} ms   {delivered} messages"
    )
    return Group(title, make_table(("camera", "state", "fps", "frames", "detections"), rows))
