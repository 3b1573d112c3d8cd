"""Wire messages and frame results for tests."""

from collections.abc import Iterable

from edge.protocols import Publisher
from edge.publish.message import ModelInfo
from edge.publish.messages import (
    AgesMs,
    Clock,
    CountsMessage,
    DetectedObject,
    DetectionsMessage,
    EventMessage,
    InfoMessage,
    LineCounts,
    OccupancyMessage,
)
from edge.types import ClockSource, Detections, FrameResult, StageTimes
from tests.support import values

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


def publish_frames(publisher: Publisher, numbers: Iterable[int], *, stream: str = "east", count: int = 1) -> None:
    for seq in numbers:
        publisher.publish(detections(seq, stream=stream, count=count))


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
    return values.detections(boxes, score=0.8125, class_id=class_id)


def frame_result(result: Detections, *, captured_at_ns: int = 0) -> FrameResult:
    """Return a frame result with round times."""
    header = values.header(
        frame=18_302,
        size=(1920, 1080),
        pts_ns=608_133_333_999,
        captured_at_ns=captured_at_ns,
        clock=ClockSource.ARRIVAL,
    )
    times = StageTimes(decode_ns=9_000_000, batch_wait_ns=6_049_999, infer_ns=11_000_000, post_ns=2_000_000)
    return values.result(header, result, times)


def event(seq, *, kind="enter", zone="yard", line=None, direction=None, duration_s=None, reason=None, **more):
    return EventMessage(
        **{
            "device": "gate-01",
            "stream": "east",
            "epoch": 41,
            "seq": seq,
            "kind": kind,
            "zone": zone,
            "line": line,
            "direction": direction,
            "duration_s": duration_s,
            "reason": reason,
            "track_id": 57,
            "class_id": 2,
            "label": "car",
            "score": 0.81,
            "frame": 18302,
            "pts_us": 608133333,
            "captured_at": "2026-11-20T10:15:02.113402Z",
            "clock": Clock(source="arrival", synced=True),
            "model": ModelInfo(name="yolo11s-gates", precision="int8"),
            "size": [1920, 1080],
            "bbox": [412.0, 233.5, 96.0, 71.5],
        }
        | more
    )


def crossing(seq, **more):
    return event(seq, kind="cross", zone=None, line="gate", direction="forward", **more)


def counts(*, state="counting", objects=None, total=2, **more):
    objects = {"car": 2, "person": 0} if objects is None else objects
    about = {"device": "gate-01", "stream": "east", "epoch": 41, "since": "2026-11-20T10:15:02.113402Z"}
    return CountsMessage(**about | {"state": state, "objects": objects, "total": total} | more)


def occupancy(*, state="following", objects=None, zones=None, lines=None, **more):
    return OccupancyMessage(
        **{
            "device": "gate-01",
            "stream": "east",
            "epoch": 41,
            "state": state,
            "since": "2026-11-20T10:15:02.113402Z",
            "objects": {"car": 2} if objects is None else objects,
            "zones": {"yard": {"car": 1}} if zones is None else zones,
            "lines": {"gate": LineCounts(forward={"car": 3}, backward={})} if lines is None else lines,
        }
        | more
    )
