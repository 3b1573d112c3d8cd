"""The demo's street with known identities, as a detector of some quality would see it. Nothing is painted."""

from functools import lru_cache

import numpy as np

from edge.types import ImageSize
from tests.support.values import detections
from tools.street.scene import Scene

SIZE = ImageSize(width=640, height=360)
FRAME_NS = 1_000_000_000 // 15
SEEDS = (1, 3, 5, 10, 13, 14, 20)  # those of the demo's cameras


@lru_cache(maxsize=16)
def truths(seed):
    scene = Scene(seed, SIZE)
    return tuple(scene.truth(index) for index in range(360))


def as_detected(truth, rng, *, jitter=0.03, missed=0.1, ghosts=0.0):
    """Return what a detector sees and, for each detection, the object that it shows, -1 for none.

    Boxes are off by `jitter` of their size (one sigma, each number), some are missed, scores vary from 0.3 to 0.95.
    In a frame there are `ghosts` (their mean) where nothing is, most of them unsure.
    """
    seen = rng.random(len(truth.xyxy)) >= missed
    xyxy, object_id = truth.xyxy[seen].astype(np.float64), truth.object_id[seen]
    side = np.tile(xyxy[:, 2:] - xyxy[:, :2], 2)
    xyxy = xyxy + rng.normal(0, jitter, xyxy.shape) * side
    score, class_id = rng.uniform(0.3, 0.95, len(xyxy)), truth.class_id[seen]
    if ghosts:
        count = rng.poisson(ghosts)
        corner, sides = rng.uniform([0, 60], [600, 320], (count, 2)), rng.uniform([10, 20], [90, 60], (count, 2))
        xyxy = np.concatenate([xyxy, np.concatenate([corner, corner + sides], axis=1)])
        score = np.concatenate([score, rng.uniform(0.25, 0.55, count)])
        class_id = np.concatenate([class_id, rng.integers(0, 4, count, dtype=np.int32)])
        object_id = np.concatenate([object_id, np.full(count, -1)])
    order = np.argsort(-score)
    return detections(xyxy[order], score=score[order], class_id=class_id[order]), object_id[order]


def identity_scores(tracker, seed, *, jitter=0.03, missed=0.1):
    """Return (switches, share of the detections with a number, detections) of a tracker over one period."""
    rng = np.random.default_rng(seed)
    number_of, switches, numbered, total = {}, 0, 0, 0
    last_seen = {}
    for index, truth in enumerate(truths(seed)):
        found, object_id = as_detected(truth, rng, jitter=jitter, missed=missed)
        tracks = tracker.update(found, time_ns=(index + 1) * FRAME_NS)
        for who, number in zip(object_id.tolist(), tracks.track_id.tolist(), strict=True):
            total += 1
            if not number:
                continue
            numbered += 1
            is_same_visit = index - last_seen.get(who, -99) <= 15  # it was not away for a second
            switches += is_same_visit and number_of.get(who, number) != number
            number_of[who], last_seen[who] = number, index
    return switches, numbered / total, total


def true_crossings(seed, x):
    """Return [(object, direction)] of a vertical line through the whole picture at `x`, by the objects' identities.

    One per visit whose first and last sighting lie on different sides: of the centres of the exact boxes.
    """
    visits = {}
    for index, truth in enumerate(truths(seed)):
        centres = (truth.xyxy[:, 0] + truth.xyxy[:, 2]) / 2 / SIZE.width
        for who, centre in zip(truth.object_id.tolist(), centres.tolist(), strict=True):
            own = visits.setdefault(who, [])
            if not own or index - own[-1][-1][0] > 15:
                own.append([])
            own[-1].append((index, centre))
    crossed = []
    for who, own in visits.items():
        for visit in own:
            before, after = visit[0][1] >= x, visit[-1][1] >= x
            if before != after:
                crossed.append((who, 1 if after else -1))
    return crossed
