"""Wire messages and frame results for tests."""

from __future__ import annotations

import numpy as np

from edge.publish.message import ModelInfo
from edge.publish.messages import AgesMs, Clock, DetectedObject, DetectionsMessage, InfoMessage
from edge.types import ClockSource, Detections, FrameHeader, FrameResult, ImageSize, StageTimes, StreamId

MODEL = ModelInfo(name="yolo11s-gates", precision="int8")


def detections(seq: int, *, stream: str = "east", count: int = 1, epoch: int = 41) -> DetectionsMessage:
    """Return a valid message with `count` objects."""
    found = [DetectedObject(2, "car", 0.81, [412.0, 233.5, 96.0, 71.5]) for _ in range(count)]
    return DetectionsMessage(
        device="gate-01",
        stream=stream,
        epoch=epoch,
        seq=seq,
        frame=seq + 58,
        pts_us=608_133_333,
        captured_at="2026-11-20T10:15:02.113402Z",
        clock=Clock(source="arrival"),
        age_ms=AgesMs(decode=9.0, batch_wait=6.0, infer=11.0, post=2.0),
        model=MODEL,
        size=[1920, 1080],
        detections=found,
    )


def birth(*streams: str) -> InfoMessage:
    """Return a birth message of device `gate-01`."""
    return InfoMessage(
        device="gate-01",
        software="0.1.0",
        epoch=41,
        started_at="2026-11-20T10:15:00.000000Z",
        model=MODEL,
        labels=["person", "bicycle", "car"],
        streams=list(streams or ("east",)),
    )


def found(*boxes: tuple[float, float, float, float], class_id: int = 2) -> Detections:
    """Return detections of one class at these xyxy."""
    count = len(boxes)
    return Detections(
        xyxy=np.array(boxes, np.float32).reshape(count, 4),
        score=np.full(count, 0.8125, np.float32),
        class_id=np.full(count, class_id, np.int32),
    )


def frame_result(result: Detections, *, stream: str = "east", captured_at_ns: int = 0) -> FrameResult:
    """Return a frame result with round times."""
    header = FrameHeader(
        stream=StreamId(stream),
        frame=18_302,
        pts_ns=608_133_333_999,
        captured_at_ns=captured_at_ns,
        clock=ClockSource.ARRIVAL,
        source_size=ImageSize(width=1920, height=1080),
        read_at_ns=0,
    )
    times = StageTimes(decode_ns=9_000_000, batch_wait_ns=6_049_999, infer_ns=11_000_000, post_ns=2_000_000)
    return FrameResult(header=header, detections=result, times=times)
