"""Zones and lines of one stream: who enters, leaves, stays, crosses.

A change is an event once it has held for `settle_s`; what goes back before that was a box that trembles on a border.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.track.events import Direction, EndReason, EventKind, LineTotals, Occupancy, Sighting, TrackEvent
from edge.track.geometry import Line, Lines, Points, Zone, Zones
from edge.types import FrameHeader

__all__ = ["Seen", "Watch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The followed objects of a frame.

    Attributes:
        header: of the frame.
        track_id: their numbers, all above 0.
        class_id: int32 (N,).
        xyxy: float32 (N, 4), pixels.
        score: float32 (N,).
        points: float64 (N, 2), where they are, shares of the frame.
    """

    header: FrameHeader
    track_id: list[int]
    class_id: NDArray[np.int32]
    xyxy: NDArray[np.float32]
    score: NDArray[np.float32]
    points: Points

    def sighting(self, index: int) -> Sighting:
        """Return one of them by itself."""
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
        self._is_inside = np.empty((0, len(zones)), np.bool_)  # in the last frame
        self._is_visitor = np.empty((0, len(zones)), np.bool_)  # for longer than it takes to settle
        self._is_right = np.empty((0, len(lines)), np.bool_)
        self._changes: dict[_Key, tuple[EventKind, Sighting]] = {}
        self._crossings: dict[_Key, _Crossing] = {}
        self._visits: dict[_Key, _Visit] = {}
        self._waiting: set[_Key] = set()  # visits that may become dwells
        self._totals: dict[tuple[int, Direction], Counter[int]] = {
            (index, direction): Counter() for index in range(len(lines)) for direction in Direction
        }
        self.version = 0  # grows with every change of `occupancy`

    def see(self, seen: Seen) -> list[TrackEvent]:
        """Take in the next frame and return what has become an event with it."""
        if not seen.track_id:
            return []
        rows = self._rows(seen)
        if self._zones:
            is_counted = self._is_visitor.take(rows, axis=0) | self._wanted.take(seen.class_id, axis=0)
            is_inside = self._areas.inside(seen.points) & is_counted
            changed = is_inside != self._is_inside.take(rows, axis=0)
            if np.count_nonzero(changed):
                self._note_changes(seen, rows, changed, is_inside)
                self._is_inside[rows] = is_inside
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
        """Forget objects that are followed no more, and return what that means."""
        events: list[TrackEvent] = []
        gone = [track_id for track_id in track_ids if track_id in self._row]
        for track_id in gone:
            events += self._part(track_id, reason)
            del self._last[track_id]
        if gone:
            self._drop(gone)
        return events

    def occupancy(self) -> Occupancy:
        """Return what holds now."""
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
            self.version += 1
        rows = np.array([known[track_id] for track_id in seen.track_id])
        if np.count_nonzero(self._class_id.take(rows) != seen.class_id):
            self._class_id[rows] = seen.class_id
            self.version += 1
        return rows

    def _note_changes(
        self, seen: Seen, rows: NDArray[np.int64], changed: NDArray[np.bool_], is_inside: NDArray[np.bool_]
    ) -> None:
        for index, zone in zip(*(each.tolist() for each in np.nonzero(changed)), strict=True):
            track_id = seen.track_id[index]
            if is_inside[index, zone] == self._is_visitor[rows[index], zone]:
                self._changes.pop((track_id, zone), None)
                continue
            first = EventKind.ENTER if track_id in self._last else EventKind.APPEAR
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
        """Make a change of zone good."""
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
        self._class_id = self._class_id[kept]
        self._is_inside, self._is_visitor = self._is_inside[kept], self._is_visitor[kept]
        self._is_right = self._is_right[kept]
        self.version += 1


def _wants(place: Zone | Line, class_id: int) -> bool:
    return place.class_ids is None or class_id in place.class_ids
