"""One stream from frame to frame: its tracker, its zones and lines, and when everything has to begin anew.

Zones and lines of one stream: who enters, leaves, stays, crosses.

A change is an event once it has held for `settle_s`; what goes back before that was a box that trembles on a border.
An object that stands there does so for minutes: it has not moved while its point stays within a fifth of its box.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edge.protocols import Tracker
from edge.track.events import Direction, EndReason, EventKind, LineTotals, Occupancy, Sighting, TrackEvent
from edge.track.geometry import Anchor, Line, Lines, Points, Zone, Zones, anchors
from edge.types import FrameHeader, FrameResult

__all__ = ["Follower", "LEAST_FPS", "Seen", "Watch", "WatchRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The followed objects of a frame."""

    header: FrameHeader
    track_id: list[int]  # their numbers, all above 0
    class_id: NDArray[np.int32]  # int32 (N,)
    xyxy: NDArray[np.float32]  # float32 (N, 4), pixels
    score: NDArray[np.float32]  # float32 (N,)
    points: Points  # float64 (N, 2), where they are, shares of the frame

    def sighting(self, index: int) -> Sighting:
        return Sighting(header=self.header, xyxy=self.xyxy[index], score=float(self.score[index]))


@dataclass(slots=True)
class _Crossing:
    """A line was crossed so often, forwards less backwards, the last time in `sighting`."""

    net: int
    sighting: Sighting


@dataclass(slots=True)
class _Visit:
    """Somebody is in a zone. `dwell_ns`: when that becomes an event, None when it is one already or never will be."""

    class_id: int
    since_ns: int
    dwell_ns: int | None


_Key = tuple[int, int]  # number of the object, index of the zone or line


_STILL = 0.2  # of a box's sides


class Watch:
    """Used by one thread. Times are of the stream (`pts_ns`), so that a file gives the same events at any speed."""

    def __init__(self, zones: Sequence[Zone], lines: Sequence[Line], *, settle_s: float, classes: int) -> None:
        self._zones, self._lines = tuple(zones), tuple(lines)
        self._areas = Zones([zone.polygon for zone in zones])
        self._borders = Lines([(line.start, line.end) for line in lines])
        self._settle_ns = round(settle_s * 1e9)
        self._wanted = np.array([[_wants(zone, k) for zone in zones] for k in range(classes)], np.bool_)
        self._wanted = self._wanted.reshape(classes, len(zones))
        self._row: dict[int, int] = {}
        self._last: dict[int, tuple[Seen, int]] = {}
        self._class_id = np.empty(0, np.int32)
        self._points = np.empty((0, 2))  # as of the last move
        self._is_inside = np.empty((0, len(zones)), np.bool_)  # in the last frame
        self._is_visitor = np.empty((0, len(zones)), np.bool_)  # for longer than it takes to settle
        self._is_right = np.empty((0, len(lines)), np.bool_)
        self._changes: dict[_Key, tuple[EventKind, Sighting]] = {}
        self._crossings: dict[_Key, _Crossing] = {}
        self._visits: dict[_Key, _Visit] = {}
        self._begun_inside: set[_Key] = set()  # seen there once, without a number
        self._waiting: set[_Key] = set()  # visits that may become dwells
        self._totals: dict[tuple[int, Direction], Counter[int]] = {
            (index, direction): Counter() for index in range(len(lines)) for direction in Direction
        }
        self.version = 0  # grows with every change of `occupancy`

    def begin(self, seen: Seen) -> None:
        """Take in where objects were in the frame before the next one, in which they get their numbers.

        From there they go over lines and borders; nothing is an event yet.
        """
        self._rows(seen)
        self._last.update({track_id: (seen, index) for index, track_id in enumerate(seen.track_id)})
        if self._zones:
            index, zone = np.nonzero(self._areas.inside(seen.points))
            self._begun_inside = {(seen.track_id[i], z) for i, z in zip(index.tolist(), zone.tolist(), strict=True)}

    def see(self, seen: Seen) -> list[TrackEvent]:
        if not seen.track_id:
            return []
        rows = self._rows(seen)
        seen = self._moved(seen, rows)
        if self._zones:
            is_counted = self._is_visitor.take(rows, axis=0) | self._wanted.take(seen.class_id, axis=0)
            is_inside = self._areas.inside(seen.points) & is_counted
            changed = is_inside != self._is_inside.take(rows, axis=0)
            if np.count_nonzero(changed):
                self._note_changes(seen, rows, changed, is_inside)
                self._is_inside[rows] = is_inside
            self._begun_inside = set()
        if self._lines:
            is_right = self._borders.is_right(seen.points)
            changed = is_right != self._is_right.take(rows, axis=0)
            if np.count_nonzero(changed):
                self._note_crossings(seen, changed)
                self._is_right[rows] = is_right
        for index, track_id in enumerate(seen.track_id):
            self._last[track_id] = (seen, index)
        if not (self._changes or self._crossings or self._waiting):
            return []
        return list(self._due(frozenset(seen.track_id), seen.header.pts_ns))

    def end(self, track_ids: Iterable[int], reason: EndReason) -> list[TrackEvent]:
        events: list[TrackEvent] = []
        gone = [track_id for track_id in track_ids if track_id in self._row]
        for track_id in gone:
            events += self._part(track_id, reason)
            del self._last[track_id]
        if gone:
            self._drop(gone)
        return events

    def occupancy(self) -> Occupancy:
        zones: dict[str, Counter[int]] = {zone.id: Counter() for zone in self._zones}
        for (_, index), visit in self._visits.items():
            zones[self._zones[index].id][visit.class_id] += 1
        return Occupancy(
            objects=Counter(self._class_id.tolist()),
            zones=zones,
            lines={
                line.id: LineTotals(
                    forward=dict(self._totals[index, Direction.FORWARD]),
                    backward=dict(self._totals[index, Direction.BACKWARD]),
                )
                for index, line in enumerate(self._lines)
            },
        )

    def _rows(self, seen: Seen) -> NDArray[np.int64]:
        """Return the rows of the arrays that hold these objects; new ones get theirs at the end."""
        known = self._row
        new = [index for index, track_id in enumerate(seen.track_id) if track_id not in known]
        if new:
            for index in new:
                known[seen.track_id[index]] = len(known)
            nobody = np.zeros((len(new), len(self._zones)), np.bool_)
            self._is_inside = np.concatenate([self._is_inside, nobody])
            self._is_visitor = np.concatenate([self._is_visitor, nobody])
            self._is_right = np.concatenate([self._is_right, self._borders.is_right(seen.points[new])])
            self._class_id = np.concatenate([self._class_id, seen.class_id[new]])
            self._points = np.concatenate([self._points, seen.points[new]])
            self.version += 1
        rows = np.array([known[track_id] for track_id in seen.track_id])
        if np.count_nonzero(self._class_id.take(rows) != seen.class_id):
            self._class_id[rows] = seen.class_id
            self.version += 1
        return rows

    def _moved(self, seen: Seen, rows: NDArray[np.int64]) -> Seen:
        """Return `seen` with the points of objects that stand still where they were."""
        size, was = seen.header.source_size, self._points.take(rows, axis=0)
        sides = (seen.xyxy[:, 2:] - seen.xyxy[:, :2]) / (size.width, size.height)
        is_still = (np.abs(seen.points - was) < _STILL * sides).all(axis=1, keepdims=True)
        points = np.where(is_still, was, seen.points)
        self._points[rows] = points
        return replace(seen, points=points)

    def _note_changes(
        self, seen: Seen, rows: NDArray[np.int64], changed: NDArray[np.bool_], is_inside: NDArray[np.bool_]
    ) -> None:
        for index, zone in zip(*(each.tolist() for each in np.nonzero(changed)), strict=True):
            track_id = seen.track_id[index]
            if is_inside[index, zone] == self._is_visitor[rows[index], zone]:
                self._changes.pop((track_id, zone), None)
                continue
            is_from_outside = track_id in self._last and (track_id, zone) not in self._begun_inside
            first = EventKind.ENTER if is_from_outside else EventKind.APPEAR
            kind = first if is_inside[index, zone] else EventKind.LEAVE
            self._changes[track_id, zone] = (kind, seen.sighting(index))

    def _note_crossings(self, seen: Seen, changed: NDArray[np.bool_]) -> None:
        for index in np.flatnonzero(changed.any(axis=1)).tolist():
            track_id = seen.track_id[index]
            before, place = self._last[track_id]
            crossed = self._borders.crossed(before.points[place, None], seen.points[index, None])[0]
            for line in np.flatnonzero(crossed).tolist():
                net = int(crossed[line])
                if (track_id, line) in self._crossings:
                    net += self._crossings[track_id, line].net
                self._crossings[track_id, line] = _Crossing(net, seen.sighting(index))

    def _due(self, track_ids: frozenset[int], now_ns: int) -> Iterator[TrackEvent]:
        """Yield what has held for long enough, of objects that are seen now."""
        settled_ns = now_ns - self._settle_ns
        for key, (kind, sighting) in list(self._changes.items()):
            if key[0] in track_ids and sighting.header.pts_ns <= settled_ns:
                yield self._change(key, kind, sighting)
        for key, crossing in list(self._crossings.items()):
            if key[0] in track_ids and crossing.sighting.header.pts_ns <= settled_ns:
                yield from self._cross(key)
        for key in list(self._waiting):
            visit, may_be_leaving = self._visits[key], key in self._changes
            if key[0] in track_ids and not may_be_leaving and visit.dwell_ns is not None and visit.dwell_ns <= now_ns:
                self._waiting.remove(key)
                seen, index = self._last[key[0]]
                yield self._of_zone(EventKind.DWELL, key, visit, seen.sighting(index))

    def _change(self, key: _Key, kind: EventKind, sighting: Sighting) -> TrackEvent:
        track_id, zone = key
        del self._changes[key]
        self.version += 1
        row = self._row[track_id]
        if kind is EventKind.LEAVE:
            self._is_visitor[row, zone] = False
            return self._of_zone(kind, key, self._close(key), sighting)
        self._is_visitor[row, zone] = True
        since_ns, dwell_s = sighting.header.pts_ns, self._zones[zone].dwell_s
        dwell_ns = None if dwell_s is None else since_ns + round(dwell_s * 1e9)
        visit = _Visit(class_id=int(self._class_id[row]), since_ns=since_ns, dwell_ns=dwell_ns)
        self._visits[key] = visit
        if dwell_ns is not None:
            self._waiting.add(key)
        return self._of_zone(kind, key, visit, sighting)

    def _cross(self, key: _Key) -> Iterator[TrackEvent]:
        crossing, (track_id, index) = self._crossings.pop(key), key
        class_id, line = int(self._class_id[self._row[track_id]]), self._lines[index]
        if not crossing.net or not _wants(line, class_id):
            return
        direction = Direction.FORWARD if crossing.net > 0 else Direction.BACKWARD
        self._totals[index, direction][class_id] += abs(crossing.net)
        self.version += 1
        for _ in range(abs(crossing.net)):
            yield TrackEvent(
                kind=EventKind.CROSS,
                track_id=track_id,
                class_id=class_id,
                sighting=crossing.sighting,
                line=line.id,
                direction=direction,
            )

    def _part(self, track_id: int, reason: EndReason) -> Iterator[TrackEvent]:
        """Yield the end of an object: what was seen last is held to be so."""
        for index in range(len(self._lines)):
            if (track_id, index) in self._crossings:
                yield from self._cross((track_id, index))
        for index in range(len(self._zones)):
            key = (track_id, index)
            change = self._changes.get(key)
            if change is not None and change[0] is EventKind.LEAVE:
                yield self._change(key, *change)
            elif change is not None:
                del self._changes[key]  # too short to have been a visit
            elif key in self._visits:
                seen, place = self._last[track_id]
                yield self._of_zone(EventKind.VANISH, key, self._close(key), seen.sighting(place), reason)

    def _close(self, key: _Key) -> _Visit:
        self._waiting.discard(key)
        return self._visits.pop(key)

    def _of_zone(
        self, kind: EventKind, key: _Key, visit: _Visit, sighting: Sighting, reason: EndReason | None = None
    ) -> TrackEvent:
        is_first = kind in (EventKind.ENTER, EventKind.APPEAR)
        return TrackEvent(
            kind=kind,
            track_id=key[0],
            class_id=visit.class_id,
            sighting=sighting,
            zone=self._zones[key[1]].id,
            duration_s=None if is_first else (sighting.header.pts_ns - visit.since_ns) / 1e9,
            reason=reason,
        )

    def _drop(self, gone: list[int]) -> None:
        kept = np.ones(len(self._row), np.bool_)
        kept[[self._row.pop(track_id) for track_id in gone]] = False
        self._row = {track_id: index for index, track_id in enumerate(self._row)}
        self._class_id, self._points = self._class_id[kept], self._points[kept]
        self._is_inside, self._is_visitor = self._is_inside[kept], self._is_visitor[kept]
        self._is_right = self._is_right[kept]
        self.version += 1


def _wants(place: Zone | Line, class_id: int) -> bool:
    return place.class_ids is None or class_id in place.class_ids


LEAST_FPS = 2.0  # below it, most objects are out of reach, or of the picture, before they are seen twice
_FRAMES_WITHIN_LOST_S = 3  # so that one detection that is missed, and a frame that is late, end nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRules:
    """Zones and lines of one stream; the model has `classes` class ids."""

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

        After a pause of `lost_s`, a step back in time or another size of the picture, no object is known any more.
        """
        header, found = result.header, result.detections
        reason = self._break(header)
        events = [] if reason is None else self.interrupt(reason)
        last, self._last = self._last, header
        tracks = self._tracker.update(found, time_ns=header.pts_ns)
        if tracks.ended:
            events += self._watch.end(tracks.ended, EndReason.LOST)
        index = tracks.track_id.nonzero()[0]
        if len(index):
            xyxy = found.xyxy.take(index, axis=0)
            seen = Seen(
                header=header,
                track_id=tracks.track_id.take(index).tolist(),
                class_id=tracks.class_id.take(index),
                xyxy=xyxy,
                score=found.score.take(index),
                points=self._points(xyxy, header),
            )
            if tracks.began and last is not None:
                self._watch.begin(self._as_it_began(seen, tracks.began, last))
            events += self._watch.see(seen)
        return tracks.track_id, events

    def _as_it_began(self, seen: Seen, began: Mapping[int, NDArray[np.float32]], last: FrameHeader) -> Seen:
        """Return what of `seen` is new, as it was in the frame before."""
        index = [number for number, track_id in enumerate(seen.track_id) if track_id in began]
        xyxy = np.stack([began[seen.track_id[number]] for number in index])
        return Seen(
            header=last,
            track_id=[seen.track_id[number] for number in index],
            class_id=seen.class_id[index],
            xyxy=xyxy,
            score=seen.score[index],
            points=self._points(xyxy, last),
        )

    def _points(self, xyxy: NDArray[np.float32], header: FrameHeader) -> Points:
        size = header.source_size
        return anchors(xyxy, self._anchor, width=size.width, height=size.height)

    def lack_at(self, fps: float) -> str | None:
        """Return what is too little where frames come at this rate; None where objects can be followed."""
        lost_s = self._lost_ns / 1e9
        if fps < LEAST_FPS:
            return f"objects are hardly ever seen twice below {LEAST_FPS:g} fps"
        if fps * lost_s < _FRAMES_WITHIN_LOST_S:
            return f"lost_s {lost_s:g} should be at least {_FRAMES_WITHIN_LOST_S / fps:.2g} at this rate"
        return None

    def interrupt(self, reason: EndReason) -> list[TrackEvent]:
        """Give up all objects, and return what that means; the totals of lines stay."""
        self._last = None
        return self._watch.end(self._tracker.reset(), reason)

    def succeed(self, before: Follower) -> None:
        """Take the place of another follower of the stream: no number that it gave is given again."""
        self._tracker.skip(before._tracker.highest)

    def occupancy(self) -> Occupancy:
        return self._watch.occupancy()

    def _break(self, header: FrameHeader) -> EndReason | None:
        """Return why this frame does not go on where the last one ended, None when it does."""
        last = self._last
        if last is None:
            return None
        if header.source_size != last.source_size:
            return EndReason.CHANGED
        return None if 0 < header.pts_ns - last.pts_ns <= self._lost_ns else EndReason.INTERRUPTED
