"""One object on a way, seen by a `Watch`, frame by frame."""

import numpy as np

from edge.track.follow import Seen, Watch
from edge.types import ClockSource, ImageSize
from tests.support import values

FRAME_NS = 100_000_000  # ten frames a second
SIZE = ImageSize(width=1000, height=500)


def header(frame, *, pts_ns=None, size=SIZE, captured_at_ns=None):
    pts_ns = frame * FRAME_NS if pts_ns is None else pts_ns
    captured_at_ns = pts_ns if captured_at_ns is None else captured_at_ns
    times = {"pts_ns": pts_ns, "captured_at_ns": captured_at_ns, "read_at_ns": pts_ns}
    return values.header(frame=frame, size=size, clock=ClockSource.ARRIVAL, **times)


def seen(frame, points, *, class_id=0, side_px=0):
    """Objects 1, 2, ... at points (None: not seen), their boxes square."""
    there = {number: point for number, point in enumerate(points, start=1) if point is not None}
    count = len(there)
    return Seen(
        header=header(frame),
        track_id=list(there),
        class_id=np.full(count, class_id, np.int32),
        xyxy=np.tile(np.array([0, 0, side_px, side_px], np.float32), (count, 1)),
        score=np.full(count, 0.9, np.float32),
        points=np.array(list(there.values()), np.float64).reshape(-1, 2),
    )


def walk(watch: Watch, path, **about):
    """Return the events of one object that is at these points, frame after frame from 1."""
    return [event for i, point in enumerate(path, 1) for event in watch.see(seen(i, [point], **about))]


def told(events):
    """Return kind, place, and frame in which it took place."""
    return [
        (event.kind.value, event.zone or f"{event.line} {event.direction.value}", event.sighting.header.frame)
        for event in events
    ]


def result(frame, *boxes, **about):
    """A frame with boxes (left, top, right, bottom) in pixels, all of class 0 and sure."""
    return values.result(header(frame, **about), values.detections(boxes))
