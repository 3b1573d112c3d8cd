"""Which frames become messages: all, those with detections, or those that differ noticeably from the last published.

In every mode a frame is also published when the last one is `heartbeat_s` old, so that silence means a fault. The
comparison is with the last *published* frame of the stream: slow drift adds up.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from edge.types import Detections, StreamId
from edge.vision.nms import iou_matrix

__all__ = ["SAME_BOX_IOU", "Selection", "is_noticeably_different"]

SAME_BOX_IOU = 0.8


class Selection:
    """Decides frame by frame; one instance for all streams. The clock is the caller's, monotonic nanoseconds."""

    def __init__(self, mode: Literal["all", "nonempty", "change"], *, heartbeat_s: float) -> None:
        self._mode = mode
        self._heartbeat_ns = round(heartbeat_s * 1e9)
        self._last: dict[StreamId, tuple[int, Detections]] = {}

    def wants(self, stream: StreamId, found: Detections, *, now_ns: int) -> bool:
        """Return whether this frame is to be published; if so, it is the one that later frames are compared with."""
        last = self._last.get(stream)
        is_wanted = (
            self._mode == "all"
            or last is None
            or now_ns - last[0] >= self._heartbeat_ns
            or (self._mode == "nonempty" and len(found) > 0)
            or (self._mode == "change" and is_noticeably_different(found, last[1]))
        )
        if is_wanted:
            self._last[stream] = (now_ns, found)
        return is_wanted


def is_noticeably_different(now: Detections, then: Detections) -> bool:
    """Return whether a class has another count, or a box of either frame has no close counterpart in the other."""
    if len(now) != len(then) or not np.array_equal(np.sort(now.class_id), np.sort(then.class_id)):
        return True
    if not len(now):
        return False
    is_equal = (now.xyxy[:, None] == then.xyxy[None]).all(axis=2)  # also of boxes without area, whose IoU is 0
    iou = np.where(is_equal, 1.0, iou_matrix(now.xyxy, then.xyxy))
    overlap = np.where(now.class_id[:, None] == then.class_id[None, :], iou, 0.0)
    return bool(overlap.max(axis=1).min() < SAME_BOX_IOU or overlap.max(axis=0).min() < SAME_BOX_IOU)
