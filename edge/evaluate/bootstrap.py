"""How far a difference of two mAPs can be trusted: what it becomes on other images of the same kind.

Source: Efron, Bootstrap Methods (1979): the images are drawn again from themselves, both models on the same ones.
"""

from __future__ import annotations

import numpy as np

from edge.errors import DatasetError
from edge.evaluate.coco_map import Accumulator

__all__ = ["error_of_difference"]

_DRAWS = 100  # the error of the error is 7 % then


def error_of_difference(one: Accumulator, other: Accumulator) -> float:
    """Return the standard error of the difference of mAP50-95 of two models on the same images, 0 to 1.

    Always the same one for the same images, whatever their order. 0 where nothing can be said, as of a single image.

    Raises:
        ValueError: if the images are not the same.
    """
    images = one.images
    if images != other.images:
        raise ValueError("the two are of different images")
    random, differences = np.random.default_rng(0), list[float]()
    for _ in range(_DRAWS):
        drawn = [images[index] for index in random.integers(0, len(images), len(images))]
        try:
            pair = [accumulator.drawn(drawn).result().map50_95 for accumulator in (one, other)]
        except DatasetError:  # none of the images drawn has a labelled box
            continue
        differences.append(pair[0] - pair[1])
    return float(np.std(differences, ddof=1)) if len(differences) > 1 else 0.0
