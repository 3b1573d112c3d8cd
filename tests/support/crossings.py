"""People and cars that go over a line in the middle of a picture, exactly, at any frame rate. Nothing is painted.

A car is 4.5 m long and drives 8 to 15 m/s; a person is 1.7 m tall and walks 0.9 to 1.8 m/s. All are seen from one edge
of the picture to the other, at different sizes, in both directions, in front of each other.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from edge.track.events import EndReason, EventKind
from edge.track.follow import Follower, WatchRules
from edge.track.geometry import Line
from edge.types import ImageSize
from tests.support import values

SIZE = ImageSize(width=1280, height=720)
LINE = Line(id="middle", start=(0.5, 1.0), end=(0.5, 0.0), class_ids=None)  # forward is to the right
OBJECTS = 30
_LEAST_SEEN = 0.3  # of its area; what is less in the picture is not detected


@dataclass(frozen=True)
class Crosser:
    """One object; `speed` in pixels per second, to the right when positive."""

    width: float
    height: float
    speed: float
    y: float
    begin_s: float

    @property
    def end_s(self):
        return self.begin_s + (SIZE.width + self.width) / abs(self.speed)

    def box(self, at_s):
        """Return what of it is in the picture, xyxy; None when that is too little."""
        x = (at_s - self.begin_s) * self.speed
        x += -self.width / 2 if self.speed > 0 else SIZE.width + self.width / 2
        half, centre = np.array([self.width, self.height]) / 2, np.array([x, self.y])
        low = np.maximum(centre - half, 0)
        high = np.minimum(centre + half, [SIZE.width, SIZE.height])
        sides = np.maximum(high - low, 0)
        return None if sides.prod() < _LEAST_SEEN * self.width * self.height else np.concatenate([low, high])


def crossers(kind, seed, *, every_s):
    """Return those of a scene; one comes about every `every_s` seconds."""
    random = np.random.default_rng([seed, 17])
    found, at_s = [], 0.0
    for _ in range(OBJECTS):
        if kind == "person":
            height = random.uniform(70, 220)
            width, speed = height * random.uniform(0.33, 0.45), random.uniform(0.9, 1.8) * height / 1.7
        else:
            width = random.uniform(110, 260)
            height, speed = width * random.uniform(0.32, 0.42), random.uniform(8, 15) * width / 4.5
        y = random.uniform(0.35 * SIZE.height, SIZE.height - height / 2)
        found.append(Crosser(width, height, speed * random.choice([-1, 1]), y, at_s))
        at_s += random.exponential(every_s)
    return found


@dataclass(frozen=True)
class Counted:
    """Crossings that are right and that never were, and how often an object had another number than before."""

    right: int
    invented: int
    switches: int


def count(tracker, scene, fps, seed, *, lost_s, jitter=0.03, missed=0.1, least_score=0.4):
    """Follow the objects of a scene as a detector of some quality sees them at a frame rate."""
    random = np.random.default_rng([seed, round(10 * fps)])
    rules = WatchRules(zones=(), lines=(LINE,), anchor="centre", settle_s=0.3, lost_s=lost_s, classes=1)
    follower, number_of, events, switches = Follower(tracker, rules), {}, [], 0
    for frame in range(1, round((max(one.end_s for one in scene) + 1) * fps)):
        seen = [(number, box) for number, one in enumerate(scene) if (box := one.box(frame / fps)) is not None]
        seen = [one for one in seen if random.random() >= missed]
        xyxy = np.array([box for _, box in seen]).reshape(-1, 4)
        xyxy = xyxy + random.normal(0, jitter, xyxy.shape) * np.tile(xyxy[:, 2:] - xyxy[:, :2], 2)
        score = random.uniform(least_score, 0.95, len(seen))
        order = np.argsort(-score)
        found = values.detections(xyxy[order], score=score[order])
        header = values.header(frame=frame, size=SIZE, pts_ns=round(frame / fps * 1e9))
        track_id, new = follower.follow(values.result(header, found))
        events += new
        for place, track in zip(order.tolist(), track_id.tolist(), strict=True):
            if track:
                who = seen[place][0]
                switches += number_of.get(who, track) != track
                number_of[who] = track
    events += follower.interrupt(EndReason.STOPPED)
    told = Counter(one.direction.value for one in events if one.kind is EventKind.CROSS)
    true = Counter("forward" if one.speed > 0 else "backward" for one in scene)
    return Counted(right=(told & true).total(), invented=(told - true).total(), switches=switches)


def count_all(make_tracker, kind, fps, seeds, *, every_s=None, lost_s=2.0, **quality):
    """Return the sums over scenes, and how many objects there were."""
    every_s = every_s or {"person": 3.0, "car": 1.7}[kind]
    counted = [
        count(
            make_tracker(lost_s=lost_s, sure_score=0.5),
            crossers(kind, seed, every_s=every_s),
            fps,
            seed,
            lost_s=lost_s,
            **quality,
        )
        for seed in seeds
    ]
    return Counted(*(sum(getattr(one, name) for one in counted) for name in ("right", "invented", "switches")))
