"""Health file of a serving runtime, once a second, and the baseline before a switch."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from edge.codec import Most, decode
from edge.deadline import Deadline
from edge.reading import available_bytes, json_object, read_file

__all__ = [
    "Health",
    "StreamHealth",
    "decode_health",
    "encode_health",
    "measure_baseline",
    "read_health",
    "why_unwell",
    "write_health",
]

_MAX_BYTES = 1 << 20
# So that a status, and a state that carries the baseline, stay small whatever a runtime says of itself.
_MAX_STREAMS = 1024
_Text = Annotated[str, Most(64)]
_Count = Annotated[int, Most(2**63 - 1)]
_LengthMs = Annotated[float, Most(2**63)]
_STATE = re.compile(r"[a-z-]{1,16}")
_STREAM = re.compile(r"[a-z0-9-]{1,32}")
_WINDOW_NS = 2_000_000_000
_FRESH_NS = 5_000_000_000
_DEADLINE_S = 5.0
_STEP_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHealth:
    """One stream: its state (`connecting`, `up`, `down`, `ended`), frames decoded and inferred since the start."""

    state: str
    decoded: _Count
    inferred: _Count

    def __post_init__(self) -> None:
        if not _STATE.fullmatch(self.state):
            raise ValueError("state of a stream: expected a word")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A snapshot; counters only grow within one `invocation` (systemd's INVOCATION_ID, or the process id).

    `release`: its name; "" when run from a pipeline file. `at_boottime_ns`: CLOCK_BOOTTIME, which no clock step moves.
    `is_ready`: the engine is loaded and one batch has run. `infer_p95_ms`, `age_p95_ms`: of the last frames: inference,
    and capture to published; None: no frames yet. `mqtt_connected` None: the pipeline has no broker.
    """

    release: _Text
    invocation: _Text
    at_boottime_ns: int
    is_ready: bool
    batches: _Count
    infer_p95_ms: _LengthMs | None
    age_p95_ms: _LengthMs | None
    mqtt_connected: bool | None
    mqtt_acknowledged: _Count
    streams: Mapping[str, StreamHealth]

    def __post_init__(self) -> None:
        for name in ("infer_p95_ms", "age_p95_ms"):
            if not math.isfinite(getattr(self, name) or 0):
                raise ValueError(f"{name}: expected a length of time")
        if len(self.streams) > _MAX_STREAMS or not all(_STREAM.fullmatch(name) for name in self.streams):
            raise ValueError(f"streams: expected at most {_MAX_STREAMS}, named as in a pipeline file")


def encode_health(health: Health) -> bytes:
    return json.dumps(asdict(health), sort_keys=True).encode() + b"\n"


def decode_health(content: bytes) -> Health:
    """ValueError if it is not what `encode_health` gives (half written, another version)."""
    try:
        return decode(Health, json_object(content), where="health")
    except ValueError as error:
        raise ValueError(f"not a health file: {error}") from error


def write_health(path: Path, health: Health) -> None:
    """Replace the file in memory, which need not survive: readers see the old or the new; OSError without a folder.

    What an earlier runtime has left under these names is taken away, not opened.
    """
    partial = path.with_name(f".{path.name}.part")
    _remove(partial)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o644)  # the service's umask is 0077; the folder's mode says who may reach it
        file.write(encode_health(health))
    try:
        partial.replace(path)
    except IsADirectoryError:
        _remove(path)
        partial.replace(path)


def read_health(path: Path) -> Health | None:
    """None if it is not there, cannot be read or is no health file."""
    try:
        return decode_health(read_file(path, most_bytes=_MAX_BYTES))
    except (OSError, ValueError):
        return None


def why_unwell(health: Health | None, *, now_boottime_ns: int, max_age_s: float) -> str | None:
    """Return why nothing may be serving, None where something is; a camera or a broker that is away is no reason."""
    if health is None:
        return "no health file: not started yet, not able to write it, or run by hand without --health"
    if not health.is_ready:
        return "not ready: the engine has not run yet"
    age_s = (now_boottime_ns - health.at_boottime_ns) / 1e9
    if not 0 <= age_s <= max_age_s:
        return f"its last word is {age_s:.0f} s old, expected at most {max_age_s:g} s"
    return None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        shutil.rmtree(path)


def measure_baseline(path: Path, *, release: str | None) -> dict[str, Any]:
    """Return rates of the release that serves, over two seconds of its health file; empty if nothing serves.

    `streams` (inferred frames per second by stream id, of those that were up), `infer_p95_ms`, `mqtt_connected`,
    `mqtt_per_s`, `available_bytes` of memory.
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
            return _rates(first, last) if last.invocation == first.invocation else {}
        time.sleep(_STEP_S)
    return {}


def _rates(first: Health, last: Health) -> dict[str, Any]:
    window_s = (last.at_boottime_ns - first.at_boottime_ns) / 1e9
    return {
        "streams": {
            name: round((stream.inferred - first.streams[name].inferred) / window_s, 3)
            for name, stream in last.streams.items()
            if name in first.streams and stream.state == "up"
        },
        "infer_p95_ms": last.infer_p95_ms,
        "mqtt_connected": last.mqtt_connected,
        "mqtt_per_s": round((last.mqtt_acknowledged - first.mqtt_acknowledged) / window_s, 3),
        "available_bytes": available_bytes(),
    }
