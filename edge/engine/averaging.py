"""Means of channels by an engine whose tensors are in the memory of the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.protocols import ActivationEngine
from edge.types import Preprocess

__all__ = ["Averaging"]


class Averaging:
    """`edge.protocols.AveragingEngine` by an engine that gives out all values of `names`; it closes that one."""

    def __init__(self, engine: ActivationEngine, names: Sequence[str]) -> None:
        self._engine = engine
        self._names = tuple(names)

    @property
    def name(self) -> str:
        """That of the engine."""
        return self._engine.name

    @property
    def preprocess(self) -> Preprocess:
        """That of the engine."""
        return self._engine.preprocess

    @property
    def max_batch(self) -> int:
        """Rows of each canvas."""
        return self._engine.max_batch

    @property
    def canvases(self) -> tuple[NDArray[np.uint8], ...]:
        """Those of the engine."""
        return self._engine.canvases

    def start(self, index: int, count: int) -> None:
        """Begin inference of the first `count` rows of canvas `index`."""
        self._engine.start(index, count)

    def wait(self, index: int) -> dict[str, NDArray[np.float64]]:
        """Return the means of the rows last started, by name."""
        tensors = self._engine.wait(index)
        return {name: _means(tensors[name]) for name in self._names}

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()


def _means(values: NDArray[np.float32]) -> NDArray[np.float64]:
    rows, channels = values.shape[:2]
    found: NDArray[np.float64] = values.reshape(rows, channels, -1).mean(axis=2, dtype=np.float64)
    return found
