"""Follows objects as ByteTrack does: sure detections first, then unsure ones for objects that were not found.

Differences to the paper: time is in seconds of the stream, so that dropped frames and other frame rates change nothing;
detections of another class may continue an object, at a discount, because detectors waver between car and truck; an
object's class is the one that most of its score went to.

Source: Zhang et al., ByteTrack: Multi-Object Tracking by Associating Every Detection Box (ECCV 2022).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edge.track.assignment import assign
from edge.track.motion import Motion, cxcywh_from_xyxy
from edge.types import Detections, Tracks
from edge.vision.nms import iou_matrix

__all__ = ["ByteTracker"]

_OTHER_CLASS = 0.7  # what an overlap counts when the classes differ
_MIN_IOU_SURE = 0.1
_MIN_IOU_UNSURE = 0.3
_MIN_IOU_FRESH = 0.3


class ByteTracker:
    """A `Tracker`; for one stream, used by one thread.

    Args:
        lost_s: an object that was not seen for so long is given up.
        sure_score: from this score on a detection may begin an object; below it, it can only continue one.
    """

    def __init__(self, *, lost_s: float, sure_score: float) -> None:
        self._lost_ns = round(lost_s * 1e9)
        self._sure_score = sure_score
        self._numbered = 0
        self._time_ns = 0
        self._forget()

    def update(self, detections: Detections, *, time_ns: int) -> Tracks:
        """Take in the detections of the next frame."""
        gone = self._drop(self._seen_ns < time_ns - self._lost_ns) if len(self._track_id) else ()
        if len(self._track_id):
            self._motion.predict((time_ns - self._time_ns) / 1e9)
        before_ns, self._time_ns = self._time_ns, time_ns
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
        return self._tracks(detections, track_of, gone)

    def reset(self) -> tuple[int, ...]:
        """Give up all objects and return their numbers: what comes next has nothing to do with what was."""
        gone = tuple(self._track_id[self._track_id > 0].tolist())
        self._forget()
        return gone

    @property
    def highest(self) -> int:
        """The highest number that was given so far, or is not to be given."""
        return self._numbered

    def skip(self, highest: int) -> None:
        """Give no number up to `highest`."""
        self._numbered = max(self._numbered, highest)

    def _forget(self) -> None:
        self._motion = Motion()
        self._track_id = np.empty(0, np.int64)  # 0: seen once, not counted as an object yet
        self._seen_ns = np.empty(0, np.int64)
        self._class_id = np.empty(0, np.int32)
        self._strength = np.empty(0, np.float64)  # by how much score the class leads over all others together

    def _associate(
        self, detections: Detections, is_sure: NDArray[np.bool_], track_of: NDArray[np.int64], before_ns: int
    ) -> None:
        """Fill in `track_of`: the row of the object that each detection shows, -1 where there is none."""
        weight = iou_matrix(self._motion.xyxy(), detections.xyxy)
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
            pair(is_known & (self._seen_ns == before_ns), ~is_sure, _MIN_IOU_UNSURE)
        if np.count_nonzero(is_known) < len(is_known):
            pair(~is_known, is_sure & (track_of < 0), _MIN_IOU_FRESH)

    def _correct(self, detections: Detections, track_of: NDArray[np.int64]) -> None:
        found = (track_of >= 0).nonzero()[0]
        if not len(found):
            return
        row = track_of.take(found)
        self._motion.correct(row, cxcywh_from_xyxy(detections.xyxy.take(found, axis=0)))
        self._seen_ns[row] = self._time_ns
        self._vote(row, detections.class_id.take(found), detections.score.take(found))
        is_fresh = self._track_id.take(row) == 0
        if np.count_nonzero(is_fresh):
            fresh = row[is_fresh]
            self._track_id[fresh] = np.arange(self._numbered + 1, self._numbered + 1 + len(fresh))
            self._numbered += len(fresh)

    def _vote(self, row: NDArray[np.int64], class_id: NDArray[np.int32], score: NDArray[np.float32]) -> None:
        """Majority vote with one counter (Boyer and Moore): whoever has more than half of all score wins."""
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
        )
