"""Events and occupancies as they travel."""

from edge.publish.message import ModelInfo
from edge.publish.messages import Clock, CountsMessage, EventMessage, LineCounts, OccupancyMessage


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
