"""Follows objects as ByteTrack does: sure detections first, then unsure ones for objects that were not found.

Differences to the paper: time is in seconds of the stream, so that dropped frames and other frame rates change nothing;
detections of another class may continue an object, at a discount, because detectors waver between car and truck; an
object's class is the one that most of its score went to. An object that was seen once has no known speed: so that it is
found again where frames are rare, its box and those of the detections are grown by the time since. An unsure detection
continues an object also when one frame missed it, and an object began where unsure ones lead back to (docs/adr/0012).

Source: Zhang et al., ByteTrack: Multi-Object Tracking by Associating Every Detection Box (ECCV 2022).

Who belongs to whom: the pairs of rows and columns with the largest sum of weights, exactly.

Where objects will be: constant velocity Kalman filters over the four numbers of a box, for all objects at once.

Each number of a box (centre x and y, width, height) is filtered by itself together with its speed: in this model the
four have nothing to do with each other, so that an 8x8 covariance is four of 2x2. Width and height have no speed: a box
changes its size because legs swing, or something hides a part, and where frames are rare that is no motion. Uncertainty
is in shares of the object's size, as in SORT and ByteTrack, but per second, so that the frame rate does not matter.

Source: Zhang et al., ByteTrack (ECCV 2022), and its reference implementation: 1/20 and 1/160 per frame at 30 fps.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from edge.types import Detections, Tracks
from edge.vision.boxes import iou_matrix

__all__ = ["ByteTracker", "Motion", "assign"]

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]
_FPS = 30.0
_POSITION = 1 / 20
_SPEED = 1 / 160
_MOVES = np.array([1.0, 1.0, 0.0, 0.0])  # which of cxcywh have a speed
_NOISE = np.stack([np.full(4, _POSITION**2), np.zeros(4), _MOVES * (_SPEED * _FPS) ** 2])[:, None]
_FIRST_POSITION = 2 * _POSITION
_FIRST_SPEED = 10 * _SPEED * _FPS


class Motion:
    """The filters of T objects.

    `state` is float64 (2, T, 4): cxcywh in pixels, and per second; `cov` is float64 (3, T, 4): variance of the number,
    covariance with its speed, variance of the speed.
    """

    def __init__(self) -> None:
        self.state: FloatArray = np.empty((2, 0, 4))
        self.cov: FloatArray = np.empty((3, 0, 4))

    def predict(self, elapsed_s: float) -> None:
        state, cov = self.state, self.cov
        state[0] += state[1] * elapsed_s
        np.maximum(state[0, :, 2:], 1.0, out=state[0, :, 2:])
        onward = np.array([[1, 2 * elapsed_s, elapsed_s**2], [0, 1, elapsed_s], [0, 0, 1]])
        self.cov = (onward @ cov.reshape(3, -1)).reshape(cov.shape)
        size = _size(state[0])
        self.cov += _NOISE * (size * size * (elapsed_s * _FPS))

    def correct(self, index: Indices, cxcywh: FloatArray) -> None:
        """Take in what was seen, float64 (M, 4), of M different objects."""
        cov, state = self.cov.take(index, axis=1), self.state.take(index, axis=1)
        gain = cov[:2] / (cov[0] + (_size(state[0]) * _POSITION) ** 2)
        self.state[:, index] = state + gain * (cxcywh - state[0])
        cov[2] -= gain[1] * cov[1]
        cov[:2] *= 1 - gain[0]
        self.cov[:, index] = cov

    def add(self, cxcywh: FloatArray) -> None:
        """Begin to follow M more, float64 (M, 4), standing still as far as known."""
        first = np.stack([np.full(4, _FIRST_POSITION**2), np.zeros(4), _MOVES * _FIRST_SPEED**2])[:, None]
        self.state = np.concatenate([self.state, np.stack([cxcywh, np.zeros_like(cxcywh)])], axis=1)
        self.cov = np.concatenate([self.cov, first * _size(cxcywh) ** 2], axis=1)

    def keep(self, kept: Mask) -> None:
        """Forget the others; bool (T,)."""
        self.state, self.cov = self.state.compress(kept, axis=1), self.cov.compress(kept, axis=1)

    def xyxy(self) -> NDArray[np.float32]:
        """Return where the objects are thought to be: float32 (T, 4), pixels."""
        cxcywh = self.state[0]
        half = cxcywh[:, 2:] / 2
        return np.concatenate([cxcywh[:, :2] - half, cxcywh[:, :2] + half], axis=1, dtype=np.float32)


def cxcywh_from_xyxy(xyxy: NDArray[np.float32]) -> FloatArray:
    """Return float64 (M, 4)."""
    low, high = xyxy[:, :2].astype(np.float64), xyxy[:, 2:]
    return np.concatenate([(low + high) / 2, high - low], axis=1)


def _size(cxcywh: FloatArray) -> FloatArray:
    """Return the mean of width and height, (M, 1)."""
    size: FloatArray = (cxcywh[:, 2:3] + cxcywh[:, 3:]) / 2
    return size


_Edge = tuple[int, float]


def assign(weight: NDArray[np.floating], *, minimum: float) -> list[tuple[int, int]]:
    """Return pairs (row, column), each row and column in one at most, with the largest sum of `weight - minimum`.

    `weight`: (R, C); pairs at or below `minimum` are never made. `minimum`: least weight of a pair.
    """
    flat = weight.ravel()
    found = (flat > minimum).nonzero()[0]
    if not len(found):
        return []
    gains: list[float] = (flat.take(found) - minimum).tolist()
    edges: dict[int, list[_Edge]] = {}
    rivals: dict[int, int] = {}
    for index, gain in zip(found.tolist(), gains, strict=True):
        row, column = divmod(index, weight.shape[1])
        edges.setdefault(row, []).append((column, gain))
        rivals[column] = rivals.get(column, 0) + 1
    # Most objects are alone: they have one candidate, which is no other's.
    pairs = [(row, own[0][0]) for row, own in edges.items() if len(own) == 1 and rivals[own[0][0]] == 1]
    settled = {row for row, _ in pairs}
    contested = {row: own for row, own in edges.items() if row not in settled}
    return [*pairs, *_Matching(contested).pairs()] if contested else pairs


class _Matching:
    """Maximum weight matching by shortest augmenting paths, one row after the other.

    Row price + column price >= gain holds for every edge, and = for the pairs; who has no pair has the price 0. That
    proves that no other pairs have a larger sum (duality of linear programs).
    """

    def __init__(self, edges: dict[int, list[_Edge]]) -> None:
        self._edges = edges
        self._row_price = {row: max(gain for _, gain in own) for row, own in edges.items()}
        self._column_price = {column: 0.0 for own in edges.values() for column, _ in own}
        self._row_of: dict[int, int] = {}
        self._column_of: dict[int, int] = {}

    def pairs(self) -> Iterable[tuple[int, int]]:
        for row in self._edges:
            self._settle(row)
        return self._column_of.items()

    def _settle(self, start: int) -> None:
        """Make the cheapest change that pairs `start`: it ends at a free column, or at a row that goes without."""
        row, length = start, 0.0
        row_ways, column_ways = {start: 0.0}, dict[int, float]()
        source: dict[int, int] = {}
        heap: list[tuple[float, int, int]] = []
        best, loser = self._row_price[start], start
        while True:
            for column, gain in self._edges[row]:
                step = self._row_price[row] + self._column_price[column] - gain
                heapq.heappush(heap, (length + step, column, row))
            while heap and heap[0][1] in column_ways:
                heapq.heappop(heap)
            if not heap or heap[0][0] >= best:
                end = self._column_of.pop(loser, None)
                break
            length, end, source[end] = heapq.heappop(heap)
            column_ways[end] = length
            if end not in self._row_of:
                best = length
                break
            row = self._row_of[end]
            row_ways[row] = length
            if length + self._row_price[row] < best:
                best, loser = length + self._row_price[row], row
        for each, way in row_ways.items():
            self._row_price[each] -= best - way
        for each, way in column_ways.items():
            self._column_price[each] += best - way
        self._take_over(end, source)

    def _take_over(self, column: int | None, source: dict[int, int]) -> None:
        """Give `column` to the row that reached it, the column of that row to the one before, and so on."""
        while column is not None:
            row = source[column]
            before = self._column_of.get(row)
            self._row_of[column], self._column_of[row] = row, column
            column = before


_OTHER_CLASS = 0.7  # what an overlap counts when the classes differ
_MIN_IOU_SURE = 0.1
_MIN_IOU_UNSURE = 0.3
_MIN_IOU_FRESH = 0.3
_MIN_IOU_BACK = 0.3
_FRAMES_BACK = 4  # as many frames the way of a new object is followed back, the last one among them
_FASTEST = 4.0  # sizes of an object (the mean of its sides) per second: a car of 50 km/h
_USUAL_S = 0.07  # from frame to frame, at 15 fps: until then, whatever is that fast still overlaps itself


class ByteTracker:
    """A `Tracker`; for one stream, used by one thread.

    `lost_s`: an object that was not seen for so long is given up. `sure_score`: from this score on a detection may
    begin an object; below it, it can only continue one.
    """

    def __init__(self, *, lost_s: float, sure_score: float) -> None:
        self._lost_ns = round(lost_s * 1e9)
        self._sure_score = sure_score
        self._numbered = 0
        self._time_ns = 0
        self._began: dict[int, NDArray[np.float32]] = {}
        self._forget()

    def update(self, detections: Detections, *, time_ns: int) -> Tracks:
        gone = self._drop(self._seen_ns < time_ns - self._lost_ns) if len(self._track_id) else ()
        if len(self._track_id):
            self._motion.predict((time_ns - self._time_ns) / 1e9)
        before_ns, self._time_ns = self._time_ns, time_ns
        self._began = {}
        count = len(detections)
        track_of = np.full(count, -1, np.int64)
        is_sure = detections.score >= self._sure_score
        if count and len(self._track_id):
            self._associate(detections, is_sure, track_of, before_ns)
            self._correct(detections, track_of)
        # What was seen once and not again was nothing.
        is_gone = (self._track_id == 0) & (self._seen_ns < time_ns)
        if np.count_nonzero(is_gone):
            self._drop(is_gone, track_of)
        fresh = (is_sure & (track_of < 0)).nonzero()[0]
        if len(fresh):
            self._begin(detections, fresh)
        self._unclaimed.append((time_ns, detections.xyxy[track_of < 0]))
        return self._tracks(detections, track_of, gone)

    def reset(self) -> tuple[int, ...]:
        gone = tuple(self._track_id[self._track_id > 0].tolist())
        self._forget()
        return gone

    @property
    def highest(self) -> int:
        return self._numbered

    def skip(self, highest: int) -> None:
        self._numbered = max(self._numbered, highest)

    def _forget(self) -> None:
        self._motion = Motion()
        self._unclaimed: deque[tuple[int, NDArray[np.float32]]] = deque(maxlen=_FRAMES_BACK)  # boxes without a number
        self._track_id = np.empty(0, np.int64)  # 0: seen once, not counted as an object yet
        self._seen_ns = np.empty(0, np.int64)
        self._class_id = np.empty(0, np.int32)
        self._strength = np.empty(0, np.float64)  # by how much score the class leads over all others together

    def _associate(
        self, detections: Detections, is_sure: NDArray[np.bool_], track_of: NDArray[np.int64], before_ns: int
    ) -> None:
        """Fill in `track_of`: the row of the object that each detection shows, -1 where there is none."""
        weight = self._overlaps(detections.xyxy, (self._time_ns - before_ns) / 1e9)
        is_other = self._class_id[:, None] != detections.class_id
        np.multiply(weight, _OTHER_CLASS, out=weight, where=is_other)
        is_known = self._track_id > 0
        is_left = np.ones(len(is_known), np.bool_)

        def pair(rows: NDArray[np.bool_], columns: NDArray[np.bool_], minimum: float) -> None:
            row, column = (rows & is_left).nonzero()[0], columns.nonzero()[0]
            is_whole = (len(row), len(column)) == weight.shape
            pairs = assign(weight if is_whole else weight[row[:, None], column], minimum=minimum)
            if pairs:
                of_row, of_column = (np.array(each) for each in zip(*pairs, strict=True))
                paired = row.take(of_row)
                track_of[column.take(of_column)] = paired
                is_left[paired] = False

        pair(is_known, is_sure, _MIN_IOU_SURE)
        if np.count_nonzero(is_sure) < len(is_sure):
            since_ns = self._unclaimed[max(-2, -len(self._unclaimed))][0]
            pair(is_known & (self._seen_ns >= since_ns), ~is_sure, _MIN_IOU_UNSURE)
        if np.count_nonzero(is_known) < len(is_known):
            pair(~is_known, track_of < 0, _MIN_IOU_FRESH)

    def _overlaps(self, seen: NDArray[np.float32], elapsed_s: float) -> NDArray[np.floating]:
        """Return (T, N) overlaps of where objects are thought to be with where something is seen."""
        known = self._motion.xyxy()
        overlap = iou_matrix(known, seen)
        if elapsed_s <= _USUAL_S:
            return overlap
        fresh = (self._track_id == 0).nonzero()[0]
        if len(fresh):
            reach = _FASTEST * (elapsed_s - _USUAL_S)
            overlap[fresh] = iou_matrix(_grown(known.take(fresh, axis=0), reach), _grown(seen, reach))
        return overlap

    def _correct(self, detections: Detections, track_of: NDArray[np.int64]) -> None:
        found = (track_of >= 0).nonzero()[0]
        if not len(found):
            return
        row = track_of.take(found)
        is_fresh = self._track_id.take(row) == 0
        if np.count_nonzero(is_fresh):
            fresh = row[is_fresh]
            numbers = np.arange(self._numbered + 1, self._numbered + 1 + len(fresh))
            self._track_id[fresh] = numbers
            self._numbered += len(fresh)
            # Without a known speed they are thought to be where they were seen.
            ways = zip(self._motion.xyxy().take(fresh, axis=0), detections.xyxy[found[is_fresh]], strict=True)
            self._began = {number: self._origin(*way) for number, way in zip(numbers.tolist(), ways, strict=True)}
        self._motion.correct(row, cxcywh_from_xyxy(detections.xyxy.take(found, axis=0)))
        self._seen_ns[row] = self._time_ns
        self._vote(row, detections.class_id.take(found), detections.score.take(found))

    def _origin(self, first: NDArray[np.float32], now: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return where an object was before it got its number: back along its way, over boxes that began nothing."""
        seen, seen_ns = first, self._unclaimed[-1][0]
        for time_ns, boxes in list(self._unclaimed)[-2::-1]:
            moved = (now - seen).reshape(2, 2).mean(axis=0) / (self._time_ns - seen_ns) * (time_ns - seen_ns)
            overlap = iou_matrix((seen + np.tile(moved, 2)).astype(np.float32)[None], boxes)[0]
            if len(overlap) and overlap.max() >= _MIN_IOU_BACK:
                seen, seen_ns = boxes[overlap.argmax()], time_ns
        return seen

    def _vote(self, row: NDArray[np.int64], class_id: NDArray[np.int32], score: NDArray[np.float32]) -> None:
        """Majority vote with one counter (Boyer and Moore): the label with more than half of all score wins."""
        strength = self._strength.take(row) + np.where(self._class_id.take(row) == class_id, score, -score)
        is_over = strength < 0
        if np.count_nonzero(is_over):
            self._class_id[row[is_over]] = class_id[is_over]
        self._strength[row] = np.abs(strength)

    def _drop(self, gone: NDArray[np.bool_], track_of: NDArray[np.int64] | None = None) -> tuple[int, ...]:
        """Forget the objects in `gone`, return the numbers they had; `track_of` then means the rows that are left."""
        if not np.count_nonzero(gone):
            return ()
        kept = ~gone
        numbers = self._track_id[gone]
        if track_of is not None:
            track_of[:] = np.where(track_of >= 0, (np.cumsum(kept) - 1)[track_of], -1)
        self._motion.keep(kept)
        self._track_id, self._seen_ns = self._track_id[kept], self._seen_ns[kept]
        self._class_id, self._strength = self._class_id[kept], self._strength[kept]
        return tuple(numbers[numbers > 0].tolist())

    def _begin(self, detections: Detections, fresh: NDArray[np.int64]) -> None:
        self._motion.add(cxcywh_from_xyxy(detections.xyxy[fresh]))
        self._track_id = np.concatenate([self._track_id, np.zeros(len(fresh), np.int64)])
        self._seen_ns = np.concatenate([self._seen_ns, np.full(len(fresh), self._time_ns, np.int64)])
        self._class_id = np.concatenate([self._class_id, detections.class_id[fresh]])
        self._strength = np.concatenate([self._strength, detections.score[fresh].astype(np.float64)])

    def _tracks(self, detections: Detections, track_of: NDArray[np.int64], gone: tuple[int, ...]) -> Tracks:
        if not len(self._track_id):
            return Tracks(track_id=np.zeros(len(detections), np.int64), class_id=detections.class_id, ended=gone)
        is_followed = track_of >= 0
        return Tracks(
            track_id=np.where(is_followed, self._track_id.take(track_of), 0),
            class_id=np.where(is_followed, self._class_id.take(track_of), detections.class_id),
            ended=gone,
            began=self._began,
        )


def _grown(xyxy: NDArray[np.float32], share: float) -> NDArray[np.float32]:
    """Return boxes that reach farther to all sides, by a share of the mean of their own sides."""
    low, high = xyxy[:, :2], xyxy[:, 2:]
    more = (high - low).mean(axis=1, keepdims=True) * share
    return np.concatenate([low - more, high + more], axis=1)
