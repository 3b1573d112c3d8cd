"""From the runtime's values to wire messages: times, boxes, the state of the system clock."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.publish.message import RunInfo
from edge.publish.messages import AgesMs, Clock, DetectedObject, DetectionsMessage
from edge.types import Detections, FrameResult

__all__ = ["detections_message", "is_clock_synced", "rfc3339_from_ns"]

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


def is_clock_synced() -> bool | None:
    """Return whether a time server has set the system clock: True, or None when that is unknown, never a guessed False.

    Looks at the marker every ten seconds.
    """
    return _is_synced_at(time.monotonic_ns() // _MARKER_AGE_NS)


@functools.lru_cache(maxsize=1)
def _is_synced_at(_look: int) -> bool | None:
    return True if _SYNC_MARKER.exists() else None


def detections_message(
    result: FrameResult, *, info: RunInfo, seq: int, is_synced: bool | None = None
) -> DetectionsMessage:
    """Return the message of one frame; it shares nothing with `result`."""
    header, times = result.header, result.times
    return DetectionsMessage(
        device=info.device,
        stream=header.stream,
        epoch=info.epoch,
        seq=seq,
        frame=header.frame,
        pts_us=header.pts_ns // 1000,
        captured_at=rfc3339_from_ns(header.captured_at_ns),
        clock=Clock(source=header.clock.value, synced=is_synced),
        age_ms=AgesMs(  # with one decimal, by integers
            decode=times.decode_ns // 100_000 / 10,
            batch_wait=times.batch_wait_ns // 100_000 / 10,
            infer=times.infer_ns // 100_000 / 10,
            post=times.post_ns // 100_000 / 10,
        ),
        model=info.model,
        size=[header.source_size.width, header.source_size.height],
        detections=_objects(result.detections, info.labels, result.track_id),
    )


def _objects(found: Detections, labels: Sequence[str], track_id: NDArray[np.int64] | None) -> list[DetectedObject]:
    """Rounding happens in float64, or 233.4 would be written as 233.39999389648438."""
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
