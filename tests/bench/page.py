"""The figures as a page: a table for each measurement, its columns as they are named where they are measured."""

import datetime
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from edge.version import __version__

__all__ = ["machine", "render", "tables"]

Row = Mapping[str, object] | Mapping[int, object]


def render(found: Mapping[str, Sequence[Row]]) -> str:
    today = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"
    head = f"edge-deploy {__version__}, {today}. {machine()} Nothing here has run on a Jetson."
    return "\n".join(["# Benchmarks", "", head, *tables(found)]) + "\n"


def tables(found: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Yield the lines of a table for each heading; all rows have the columns of the first."""
    for title, rows in found.items():
        yield from ("", f"## {title}", "")
        yield "| " + " | ".join(map(str, rows[0])) + " |"
        yield "|---" * len(rows[0]) + "|"
        yield from ("| " + " | ".join(map(_told, row.values())) + " |" for row in rows)


def machine() -> str:
    """Return what the figures are of."""
    said = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = re.findall(r"^model name\s*: (.*)", said, re.M)
    name = names[0].strip() if names else platform.processor()
    vnni = " with AVX512-VNNI" if re.search(r"^flags.*\bavx512_vnni\b", said, re.M) else ""
    return f"{name}{vnni}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.machine()}."


def _told(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return "" if value is None else str(value)
