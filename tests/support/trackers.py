"""Detections of objects that move as told, for trackers."""

import numpy as np

from tests.support import values

FRAME_NS = 40_000_000


def detections(*objects):
    """Return detections of (cx, cy, width, height[, score[, class_id]]) in pixels."""
    rows = [(*one, *(0.9, 0)[len(one) - 4 :]) for one in objects]
    table = np.array(rows, np.float64).reshape(-1, 6)
    half = table[:, 2:4] / 2
    boxes = np.concatenate([table[:, :2] - half, table[:, :2] + half], axis=1)
    return values.detections(boxes, table[:, 4], table[:, 5])


def follow(tracker, frames, *, first_ns=0, step_ns=FRAME_NS):
    """Return what the tracker says of each frame."""
    return [tracker.update(frame, time_ns=first_ns + i * step_ns) for i, frame in enumerate(frames)]
