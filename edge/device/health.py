"""What a serving runtime says of itself, once a second, for the one who has to judge a switch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Health", "StreamHealth", "decode_health", "encode_health", "read_health", "why_unwell", "write_health"]

_MAX_BYTES = 4 << 20  # ten thousand streams


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHealth:
    """One stream: its state (`connecting`, `up`, `down`, `ended`), frames decoded and inferred since the start."""

    state: str
    decoded: int
    inferred: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A snapshot; counters only grow within one `invocation`.

    Attributes:
        release: name of the release that serves; "" when run from a pipeline file.
        invocation: systemd's INVOCATION_ID, or the process id: another one means that it was started again.
        at_boottime_ns: CLOCK_BOOTTIME of the snapshot, which no clock step moves.
        is_ready: the engine is loaded and one batch has run.
        batches: batches inferred.
        infer_p95_ms, age_p95_ms: of the last frames: inference, and capture to published; None: no frames yet.
        mqtt_connected: None when the pipeline has no broker.
        mqtt_acknowledged: messages that the broker has acknowledged.
        streams: by stream id.
    """

    release: str
    invocation: str
    at_boottime_ns: int
    is_ready: bool
    batches: int
    infer_p95_ms: float | None
    age_p95_ms: float | None
    mqtt_connected: bool | None
    mqtt_acknowledged: int
    streams: Mapping[str, StreamHealth] = field(default_factory=dict)


def encode_health(health: Health) -> bytes:
    """Return the file's content."""
    return json.dumps(asdict(health), sort_keys=True).encode() + b"\n"


def decode_health(content: bytes) -> Health:
    """Return what `encode_health` was given.

    Raises:
        ValueError: if it is not that (half written, another version).
    """
    try:
        values: dict[str, Any] = json.loads(content)
        streams = {name: StreamHealth(**one) for name, one in values.pop("streams").items()}
        return Health(**values, streams=streams)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a health file: {error}") from error


def write_health(path: Path, health: Health) -> None:
    """Replace the file: a reader sees the old content or the new one. It lies in memory and need not survive anything.

    Raises:
        OSError: if its folder is not there or cannot be written.
    """
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(encode_health(health))
    partial.chmod(0o644)  # the service's umask is 0077; who may come near is the folder's matter
    partial.replace(path)


def read_health(path: Path) -> Health | None:
    """Return what the file says; None if it is not there, cannot be read or is no health file."""
    try:
        with open(path, "rb") as file:
            return decode_health(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return None


def why_unwell(health: Health | None, *, now_boottime_ns: int, max_age_s: float) -> str | None:
    """Return why nothing may be serving, None where something is; a camera or a broker that is away is no reason."""
    if health is None:
        return "no health file: not started yet, or not able to write it"
    if not health.is_ready:
        return "not ready: the engine has not run yet"
    age_s = (now_boottime_ns - health.at_boottime_ns) / 1e9
    if not 0 <= age_s <= max_age_s:
        return f"its last word is {age_s:.0f} s old, expected at most {max_age_s:g} s"
    return None
