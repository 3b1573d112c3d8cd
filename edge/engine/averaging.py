"""Means of channels by an engine whose tensors are in the memory of the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.protocols import ActivationEngine

__all__ = ["Averaging", "ByEngine"]


class ByEngine:
    """`edge.protocols.Runner` but for `wait`: runs on the canvases of another engine, which it closes."""

    def __init__(self, engine: ActivationEngine) -> None:
        self._engine = engine
        self.name = engine.name
        self.preprocess = engine.preprocess
        self.max_batch = engine.max_batch

    @property
    def canvases(self) -> tuple[NDArray[np.uint8], ...]:
        return self._engine.canvases

    def start(self, index: int, count: int) -> None:
        self._engine.start(index, count)

    def close(self) -> None:
        self._engine.close()


class Averaging(ByEngine):
    """`edge.protocols.AveragingEngine` by an engine that gives out all values of `names`; it closes that one."""

    def __init__(self, engine: ActivationEngine, names: Sequence[str]) -> None:
        super().__init__(engine)
        self._names = tuple(names)
        self._counts: dict[int, int] = {}

    def start(self, index: int, count: int) -> None:
        super().start(index, count)
        self._counts[index] = count

    def wait(self, index: int) -> dict[str, NDArray[np.float64]]:
        tensors = self._engine.wait(index)
        return {name: _means(tensors[name], self._counts[index]) for name in self._names}


def _means(values: NDArray[np.float32], count: int) -> NDArray[np.float64]:
    rows, channels = values.shape[:2]
    found: NDArray[np.float64] = values.reshape(rows, channels, -1).mean(axis=2, dtype=np.float64)
    whole: NDArray[np.float64] = found.reshape(count, rows // count, channels).mean(axis=1)
    return whole
