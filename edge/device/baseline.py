"""What the serving release does just before a switch: the measure against which the next one is judged."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from edge.deadline import Deadline
from edge.device.health import Health, read_health
from edge.reading import read_file

__all__ = ["available_bytes", "measure_baseline"]

_WINDOW_NS = 2_000_000_000
_FRESH_NS = 5_000_000_000
_DEADLINE_S = 5.0
_STEP_S = 0.1


def measure_baseline(path: Path, *, release: str | None) -> dict[str, Any]:
    """Return rates of the release that serves, over two seconds of its health file; empty if nothing serves.

    Returns:
        `release`, `window_s`, `streams` (inferred frames per second by stream id, of those that were up),
        `infer_p95_ms`, `age_p95_ms`, `mqtt_connected`, `mqtt_per_s`, `available_bytes` of memory.
    """
    first = read_health(path)
    if first is None or release is None:
        return {}
    if not 0 <= time.clock_gettime_ns(time.CLOCK_BOOTTIME) - first.at_boottime_ns <= _FRESH_NS:
        return {}
    deadline = Deadline.after(_DEADLINE_S)
    while not deadline.is_over:
        last = read_health(path)
        if last is not None and last.at_boottime_ns - first.at_boottime_ns >= _WINDOW_NS:
            return _rates(first, last, release) if last.invocation == first.invocation else {}
        time.sleep(_STEP_S)
    return {}


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return how much memory can be had without swapping; None where the system does not say."""
    try:
        lines = read_file(meminfo).decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found and found[0].isdigit() else None


def _rates(first: Health, last: Health, release: str) -> dict[str, Any]:
    window_s = (last.at_boottime_ns - first.at_boottime_ns) / 1e9
    return {
        "release": release,
        "window_s": round(window_s, 3),
        "streams": {
            name: round((stream.inferred - first.streams[name].inferred) / window_s, 3)
            for name, stream in last.streams.items()
            if name in first.streams and stream.state == "up"
        },
        "infer_p95_ms": last.infer_p95_ms,
        "age_p95_ms": last.age_p95_ms,
        "mqtt_connected": last.mqtt_connected,
        "mqtt_per_s": round((last.mqtt_acknowledged - first.mqtt_acknowledged) / window_s, 3),
        "available_bytes": available_bytes(),
    }
