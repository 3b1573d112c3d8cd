"""From the runtime's values to wire messages: times, boxes, the state of the system clock."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.publish.message import ModelInfo
from edge.publish.messages import AgesMs, Clock, DetectedObject, DetectionsMessage
from edge.types import Detections, FrameResult, StageTimes

__all__ = ["ClockSync", "detections_message", "rfc3339_from_ns"]

# systemd-timesyncd creates it after the first answer of a time server; adjtimex() is closed to a hardened service.
_SYNC_MARKER = Path("/run/systemd/timesync/synchronized")
_MARKER_AGE_NS = 10_000_000_000
# One decimal of a pixel, three of a score: as `numpy.round` does it, whose own way there costs several times as much.
_ROUNDED_AT = np.array([10.0, 10.0, 10.0, 10.0, 1000.0])


def rfc3339_from_ns(unix_ns: int) -> str:
    """Return UTC with microseconds, e.g. `2026-11-20T10:15:02.113402Z`; what lies below a microsecond is cut off."""
    seconds, rest_ns = divmod(unix_ns, 1_000_000_000)
    return f"{_second_text(seconds)}.{rest_ns // 1000:06d}Z"


@functools.lru_cache(maxsize=64)
def _second_text(unix_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix_s))


class ClockSync:
    """Whether the system clock is set by a time server: True, or None when nobody says so (never a guessed False)."""

    def __init__(self, *, marker: Path = _SYNC_MARKER, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._marker = marker
        self._now_ns = now_ns
        self._read_at_ns: int | None = None
        self._is_synced: bool | None = None

    def __call__(self) -> bool | None:
        """Return what holds now; the marker is looked at every ten seconds."""
        now_ns = self._now_ns()
        if self._read_at_ns is None or now_ns - self._read_at_ns >= _MARKER_AGE_NS:
            self._read_at_ns = now_ns
            self._is_synced = True if self._marker.exists() else None
        return self._is_synced


def detections_message(
    result: FrameResult,
    *,
    device: str,
    epoch: int,
    seq: int,
    labels: Sequence[str],
    model: ModelInfo,
    is_synced: bool | None = None,
) -> DetectionsMessage:
    """Return the message of one frame; it shares nothing with `result`."""
    header = result.header
    return DetectionsMessage(
        device=device,
        stream=header.stream,
        epoch=epoch,
        seq=seq,
        frame=header.frame,
        pts_us=header.pts_ns // 1000,
        captured_at=rfc3339_from_ns(header.captured_at_ns),
        clock=Clock(source=header.clock.value, synced=is_synced),
        age_ms=_ages(result.times),
        model=model,
        size=[header.source_size.width, header.source_size.height],
        detections=_objects(result.detections, labels, result.track_id),
    )


def _ages(times: StageTimes) -> AgesMs:
    """Return milliseconds with one decimal; the arithmetic stays in integers."""
    return AgesMs(
        decode=times.decode_ns // 100_000 / 10,
        batch_wait=times.batch_wait_ns // 100_000 / 10,
        infer=times.infer_ns // 100_000 / 10,
        post=times.post_ns // 100_000 / 10,
    )


def _objects(found: Detections, labels: Sequence[str], track_id: NDArray[np.int64] | None) -> list[DetectedObject]:
    """Return plain values; rounding happens in float64, or 233.4 would be written as 233.39999389648438."""
    if not len(found):
        return []
    values = np.empty((len(found), 5))
    values[:, :4], values[:, 4] = found.xyxy, found.score
    values[:, 2:4] -= values[:, :2]
    rounded = (np.rint(values * _ROUNDED_AT) / _ROUNDED_AT).tolist()
    known = len(labels)
    numbers = [None] * len(found) if track_id is None else [number or None for number in track_id.tolist()]
    return [
        DetectedObject(class_id, labels[class_id] if class_id < known else None, row.pop(), row, number)
        for class_id, row, number in zip(found.class_id.tolist(), rounded, numbers, strict=True)
    ]
