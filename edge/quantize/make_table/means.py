"""The means of the channels that convolutions read: what the correction of their biases is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edge.protocols import AveragingEngine
from edge.quantize.feed import run_stills
from edge.quantize.make_table.images import CalibrationImage

__all__ = ["channel_means"]

_DIGITS = 5  # in a table; far more than the images say


def channel_means(
    images: Sequence[CalibrationImage],
    engine: AveragingEngine,
    *,
    names: Sequence[str],
    on_image: Callable[[], None],
) -> dict[str, tuple[float, ...]]:
    """Return the mean of each channel of `names` over all of `images`, whose order matters in the last bit.

    Args:
        images: to look at.
        engine: gives the means of channels of `names`.
        names: tensors.
        on_image: called after each image.

    Raises:
        EdgeError: if an image cannot be decoded, or inference fails.
    """
    sums: dict[str, NDArray[np.float64]] = {}
    for placed, means in run_stills([image.path for image in images], engine):
        for row in range(len(placed)):
            for name in names:
                sums[name] = sums[name] + means[name][row] if name in sums else means[name][row].copy()
            on_image()
    return {name: tuple(float(f"{value / len(images):.{_DIGITS}g}") for value in sums[name]) for name in names}
