"""One stream from frame to frame: its tracker, its zones and lines, and when everything has to begin anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.protocols import Tracker
from edge.track.events import EndReason, Occupancy, TrackEvent
from edge.track.geometry import Anchor, Line, Zone, anchors
from edge.track.watch import Seen, Watch
from edge.types import FrameHeader, FrameResult

__all__ = ["Follower", "WatchRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRules:
    """What is watched for in one stream; `classes` is how many class ids the model has."""

    zones: Sequence[Zone]
    lines: Sequence[Line]
    anchor: Anchor
    settle_s: float
    lost_s: float
    classes: int


class Follower:
    """Used by one thread at a time."""

    def __init__(self, tracker: Tracker, rules: WatchRules) -> None:
        self._tracker = tracker
        self._anchor = rules.anchor
        self._lost_ns = round(rules.lost_s * 1e9)
        self._watch = Watch(rules.zones, rules.lines, settle_s=rules.settle_s, classes=rules.classes)
        self._last: FrameHeader | None = None

    @property
    def version(self) -> int:
        """Grows with every change of `occupancy`."""
        return self._watch.version

    def follow(self, result: FrameResult) -> tuple[NDArray[np.int64], list[TrackEvent]]:
        """Return the number of the object that each detection shows, int64 (N,), 0 for none, and what has happened.

        After a pause of `lost_s`, a step back in time or another size of the picture, nobody is known any more.
        """
        header, found = result.header, result.detections
        reason = self._break(header)
        events = [] if reason is None else self.interrupt(reason)
        self._last = header
        tracks = self._tracker.update(found, time_ns=header.pts_ns)
        if tracks.ended:
            events += self._watch.end(tracks.ended, EndReason.LOST)
        index = tracks.track_id.nonzero()[0]
        if len(index):
            xyxy = found.xyxy.take(index, axis=0)
            size = header.source_size
            seen = Seen(
                header=header,
                track_id=tracks.track_id.take(index).tolist(),
                class_id=tracks.class_id.take(index),
                xyxy=xyxy,
                score=found.score.take(index),
                points=anchors(xyxy, self._anchor, width=size.width, height=size.height),
            )
            events += self._watch.see(seen)
        return tracks.track_id, events

    def interrupt(self, reason: EndReason) -> list[TrackEvent]:
        """Give up all objects, and return what that means; the totals of lines stay."""
        self._last = None
        return self._watch.end(self._tracker.reset(), reason)

    def succeed(self, before: Follower) -> None:
        """Take the place of another follower of the stream: no number that it gave is given again."""
        self._tracker.skip(before._tracker.highest)

    def occupancy(self) -> Occupancy:
        """Return what holds now."""
        return self._watch.occupancy()

    def _break(self, header: FrameHeader) -> EndReason | None:
        """Return why this frame does not go on where the last one ended, None when it does."""
        last = self._last
        if last is None:
            return None
        if header.source_size != last.source_size:
            return EndReason.CHANGED
        return None if 0 < header.pts_ns - last.pts_ns <= self._lost_ns else EndReason.INTERRUPTED
