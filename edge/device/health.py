"""What a serving runtime says of itself, once a second, for the one who has to judge a switch."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edge.reading import json_object, read_file

__all__ = ["Health", "StreamHealth", "decode_health", "encode_health", "read_health", "why_unwell", "write_health"]

_MAX_BYTES = 1 << 20
# So that a status, and a state that carries the baseline, stay small whatever a runtime says of itself.
_MAX_STREAMS = 1024
_MAX_TEXT = 64
_MAX_COUNT = 2**63 - 1
_STATE = re.compile(r"[a-z-]{1,16}")
_STREAM = re.compile(r"[a-z0-9-]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHealth:
    """One stream: its state (`connecting`, `up`, `down`, `ended`), frames decoded and inferred since the start."""

    state: str
    decoded: int
    inferred: int

    def __post_init__(self) -> None:
        if not (isinstance(self.state, str) and _STATE.fullmatch(self.state)):
            raise ValueError("state of a stream: expected a word")
        _check_counts(decoded=self.decoded, inferred=self.inferred)


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

    def __post_init__(self) -> None:
        _check_texts(release=self.release, invocation=self.invocation)
        _check_counts(batches=self.batches, mqtt_acknowledged=self.mqtt_acknowledged)
        if not isinstance(self.at_boottime_ns, int) or abs(self.at_boottime_ns) > _MAX_COUNT:
            raise ValueError("at_boottime_ns: expected a time")
        _check_lengths_of_time(infer_p95_ms=self.infer_p95_ms, age_p95_ms=self.age_p95_ms)
        if not isinstance(self.is_ready, bool) or not isinstance(self.mqtt_connected, (bool, type(None))):
            raise ValueError("is_ready, mqtt_connected: expected true or false")
        if len(self.streams) > _MAX_STREAMS or not all(_STREAM.fullmatch(name) for name in self.streams):
            raise ValueError(f"streams: expected at most {_MAX_STREAMS}, named as in a pipeline file")


def encode_health(health: Health) -> bytes:
    """Return the file's content."""
    return json.dumps(asdict(health), sort_keys=True).encode() + b"\n"


def decode_health(content: bytes) -> Health:
    """Return what `encode_health` was given.

    Raises:
        ValueError: if it is not that (half written, another version).
    """
    try:
        values: dict[str, Any] = json_object(content)
        streams = {name: StreamHealth(**one) for name, one in values.pop("streams").items()}
        return Health(**values, streams=streams)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not a health file: {error}") from error


def write_health(path: Path, health: Health) -> None:
    """Replace the file: a reader sees the old content or the new one. It lies in memory and need not survive anything.

    Whatever a runtime before has left under these names is taken away, not opened.

    Raises:
        OSError: if its folder is not there or cannot be written.
    """
    partial = path.with_name(f".{path.name}.part")
    _remove(partial)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o644)  # the service's umask is 0077; who may come near is the folder's matter
        file.write(encode_health(health))
    try:
        partial.replace(path)
    except IsADirectoryError:
        _remove(path)
        partial.replace(path)


def read_health(path: Path) -> Health | None:
    """Return what the file says; None if it is not there, cannot be read or is no health file."""
    try:
        return decode_health(read_file(path, most_bytes=_MAX_BYTES))
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


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        shutil.rmtree(path)


def _check_counts(**counts: object) -> None:
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_COUNT:
            raise ValueError(f"{name}: expected a count")


def _check_texts(**texts: object) -> None:
    for name, value in texts.items():
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise ValueError(f"{name}: expected a text of at most {_MAX_TEXT} characters")


def _check_lengths_of_time(**lengths_ms: object) -> None:
    for name, value in lengths_ms.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name}: expected a length of time, or null")
