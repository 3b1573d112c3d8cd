"""On the host: what a model reads of canvases, and means of channels by an engine whose tensors lie there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.protocols import ActivationEngine
from edge.types import ColourOrder, Preprocess

__all__ = ["Averaging", "ByEngine", "model_input"]


def model_input(canvases: NDArray[np.uint8], preprocess: Preprocess) -> NDArray[np.float32]:
    """Return what the model reads of uint8 (B, H, W, 3) RGB canvases: float32 (B, 3, H, W)."""
    channels = (2, 1, 0) if preprocess.colour_order is ColourOrder.BGR else (0, 1, 2)
    made = np.empty((canvases.shape[0], 3, *canvases.shape[1:3]), np.float32)
    levels = np.arange(256) * preprocess.scale
    for channel, (source, mean, std) in enumerate(zip(channels, preprocess.mean, preprocess.std, strict=True)):
        made[:, channel] = ((levels - mean) / std).astype(np.float32)[canvases[..., source]]
    return made


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
