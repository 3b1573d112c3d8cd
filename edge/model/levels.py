"""Detection levels: which strides give a head its number of cells."""

from __future__ import annotations

from edge.types import ImageSize

__all__ = ["cells_at", "strides_of"]

_STRIDES = (4, 8, 16, 32, 64, 128)


def strides_of(cells: int, size: ImageSize) -> tuple[int, ...] | None:
    """Return the neighbouring strides, finest first, whose cells add up to `cells`; None if there are none.

    Each level has four times the cells of the next one, so that no two sets of neighbours have the same sum.
    """
    for first in range(len(_STRIDES)):
        for last in range(first + 1, len(_STRIDES) + 1):
            strides = _STRIDES[first:last]
            fits = size.width % strides[-1] == 0 and size.height % strides[-1] == 0
            if fits and sum(cells_at(stride, size) for stride in strides) == cells:
                return strides
    return None


def cells_at(stride: int, size: ImageSize) -> int:
    """Return how many cells a level has."""
    return (size.width // stride) * (size.height // stride)
