"""Events of objects, each told once: values, no behaviour."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.types import FrameHeader

__all__ = ["Direction", "EndReason", "EventKind", "LineTotals", "Occupancy", "Sighting", "TrackEvent"]


class EventKind(str, enum.Enum):
    """enter + appear = leave + vanish + those who are inside, of each zone."""

    ENTER = "enter"  # into a zone, over its border
    APPEAR = "appear"  # first seen inside of a zone
    LEAVE = "leave"  # out of a zone, over its border
    VANISH = "vanish"  # last seen inside of a zone; `reason` says why it is followed no more
    DWELL = "dwell"  # has been in a zone for its `dwell_s`
    CROSS = "cross"  # over a line


class Direction(str, enum.Enum):
    """Over a line: forward is from its left to its right, for who goes from its start to its end."""

    FORWARD = "forward"
    BACKWARD = "backward"


class EndReason(str, enum.Enum):
    """Why objects are followed no more."""

    LOST = "lost"  # not detected for `lost_s`, though frames came
    INTERRUPTED = "interrupted"  # no frames came, or their time made a jump
    CHANGED = "changed"  # the picture has another size
    STOPPED = "stopped"  # the service ends, or the file was read to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """An object in one frame; `xyxy` float32 (4,), pixels."""

    header: FrameHeader
    xyxy: NDArray[np.float32]
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackEvent:
    """One event. `sighting` is of the frame in which it took place, which may be `settle_s` ago."""

    kind: EventKind
    track_id: int
    class_id: int
    sighting: Sighting
    zone: str | None = None  # this or `line`: id of the one that it is about
    line: str | None = None
    direction: Direction | None = None  # of `cross` only
    duration_s: float | None = None  # how long the object was in the zone, of `leave`, `vanish` and `dwell`
    reason: EndReason | None = None  # of `vanish` only


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTotals:
    """How many of each class id have crossed a line since the start."""

    forward: Mapping[int, int]
    backward: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """How many of each class id are followed, are in each zone by its id, and have crossed each line by its id."""

    objects: Mapping[int, int]
    zones: Mapping[str, Mapping[int, int]]
    lines: Mapping[str, LineTotals]
