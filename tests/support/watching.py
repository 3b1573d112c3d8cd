"""One object on a way, seen by a `Watch`, frame by frame."""

from __future__ import annotations

import numpy as np

from edge.track.watch import Seen, Watch
from edge.types import ClockSource, Detections, FrameHeader, FrameResult, ImageSize, StageTimes, StreamId

FRAME_NS = 100_000_000  # ten frames a second
SIZE = ImageSize(width=1000, height=500)
TIMES = StageTimes(decode_ns=0, batch_wait_ns=0, infer_ns=0, post_ns=0)


def header(frame, *, pts_ns=None, size=SIZE, captured_at_ns=None):
    pts_ns = frame * FRAME_NS if pts_ns is None else pts_ns
    return FrameHeader(
        stream=StreamId("east"),
        frame=frame,
        pts_ns=pts_ns,
        captured_at_ns=pts_ns if captured_at_ns is None else captured_at_ns,
        clock=ClockSource.ARRIVAL,
        source_size=size,
        read_at_ns=pts_ns,
    )


def seen(frame, points, *, class_id=0):
    """Objects 1, 2, ... at points (None: not seen)."""
    there = {number: point for number, point in enumerate(points, start=1) if point is not None}
    count = len(there)
    return Seen(
        header=header(frame),
        track_id=list(there),
        class_id=np.full(count, class_id, np.int32),
        xyxy=np.zeros((count, 4), np.float32),
        score=np.full(count, 0.9, np.float32),
        points=np.array(list(there.values()), np.float64).reshape(-1, 2),
    )


def walk(watch: Watch, path, *, class_id=0):
    """Return the events of one object that is at these points, frame after frame from 1."""
    return [event for i, point in enumerate(path, 1) for event in watch.see(seen(i, [point], class_id=class_id))]


def told(events):
    """Return kind, place, and frame in which it took place."""
    return [
        (event.kind.value, event.zone or f"{event.line} {event.direction.value}", event.sighting.header.frame)
        for event in events
    ]


def result(frame, *boxes, **about):
    """A frame with boxes (left, top, right, bottom) in pixels, all of class 0 and sure."""
    return FrameResult(
        header=header(frame, **about),
        detections=Detections(
            xyxy=np.array(boxes, np.float32).reshape(-1, 4),
            score=np.full(len(boxes), 0.9, np.float32),
            class_id=np.zeros(len(boxes), np.int32),
        ),
        times=TIMES,
    )
