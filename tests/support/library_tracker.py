"""ByteTrack of the library `trackers`, behind our protocol: the independent reference for ours. Only tests use it.
And detections of objects that move as told.

`.ci/setup rest` puts it into `.cache/trackers` without its own OpenCV, which would overwrite ours.
"""

import sys
import warnings
from pathlib import Path

import numpy as np

from edge.types import Detections, Tracks
from tests.support import values

FOLDER = Path(__file__).parents[2] / ".cache" / "trackers"


class LibraryTracker:
    """A `Tracker`. A reset begins the library's numbers again; ours go on."""

    def __init__(self, *, lost_s: float, sure_score: float) -> None:
        tracker, self._sv = _library()
        # A buffer is told in frames of a 30th of a second.
        self._tracker = tracker(
            lost_track_buffer=round(30 * lost_s),
            frame_rate=30,
            track_activation_threshold=sure_score,
            high_conf_det_threshold=sure_score,
        )
        self._offset = 0
        self._known: set[int] = set()
        self._highest = 0

    @staticmethod
    def lacking() -> str:
        """Why it cannot be used; empty when it can."""
        return "" if FOLDER.is_dir() else f"the library trackers is not in {FOLDER}; run: bash .ci/setup rest"

    def update(self, detections: Detections, *, time_ns: int) -> Tracks:
        given = self._sv.Detections(
            xyxy=detections.xyxy,
            confidence=detections.score,
            class_id=detections.class_id.astype(int),
            data={"row": np.arange(len(detections))},
        )
        found = self._tracker.update(given, timestamp=time_ns / 1e9)
        track_id = np.zeros(len(detections), np.int64)
        if len(found):
            track_id[found.data["row"]] = np.where(found.tracker_id < 0, 0, found.tracker_id + 1 + self._offset)
        return Tracks(track_id=track_id, class_id=detections.class_id, ended=self._ended())

    def reset(self) -> tuple[int, ...]:
        gone = tuple(sorted(self._known))
        self._tracker.reset()
        self._offset, self._known = self._highest, set()
        return gone

    @property
    def highest(self) -> int:
        return self._highest

    def skip(self, highest: int) -> None:
        self._offset = self._highest = max(self._highest, highest)

    def _ended(self) -> tuple[int, ...]:
        alive = {track.tracker_id + 1 + self._offset for track in self._tracker.tracks if track.tracker_id >= 0}
        gone, self._known = self._known - alive, alive
        self._highest = max(self._highest, *alive, 0)
        return tuple(sorted(gone))


def _library():
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))  # at the end: what we have ourselves is ours
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import supervision
        from trackers import ByteTrackTracker
    return ByteTrackTracker, supervision


FRAME_NS = 40_000_000


def detections(*objects):
    """Return detections of (cx, cy, width, height[, score[, class_id]]) in pixels."""
    rows = [(*one, *(0.9, 0)[len(one) - 4 :]) for one in objects]
    table = np.array(rows, np.float64).reshape(-1, 6)
    half = table[:, 2:4] / 2
    boxes = np.concatenate([table[:, :2] - half, table[:, :2] + half], axis=1)
    return values.detections(boxes, table[:, 4], table[:, 5])


def follow(tracker, frames, *, first_ns=0, step_ns=FRAME_NS):
    return [tracker.update(frame, time_ns=first_ns + i * step_ns) for i, frame in enumerate(frames)]
