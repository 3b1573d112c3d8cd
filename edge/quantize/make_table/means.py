"""The means of the channels that convolutions read: what the correction of their biases is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.protocols import AveragingEngine
from edge.quantize.crew import ReadImage
from edge.quantize.feed import run_stills
from edge.quantize.stills import StillImage
from edge.quantize.stills_tool import StillsTool, StillsWork

__all__ = ["Averager", "MeansOfEach", "mean_of_all"]

_DIGITS = 5  # in a table; far more than the images say

Means = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeansOfEach(StillsWork):
    """The mean of each channel of `names`, which are tensors, image by image."""

    names: tuple[str, ...]

    def open(self) -> Averager:
        """Return an engine that takes means."""
        spec, content = self.forms.spec, self.forms.float_model()
        engine = self.kind.averaging(spec, self.names, max_batch=self.max_batch, content=content)
        return Averager(engine, self.names)


class Averager(StillsTool[AveragingEngine]):
    """Gives the means of channels of `names`, float64 (C,), image by image."""

    def __init__(self, engine: AveragingEngine, names: Sequence[str]) -> None:
        super().__init__(engine)
        self._names = tuple(names)

    def run(self, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]) -> Iterator[Means]:
        """Yield the means of each image."""
        for placed, means in run_stills([image.path for image in items], self._engine, read=read):
            for row in range(len(placed)):
                yield {name: means[name][row].copy() for name in self._names}
                on_item()


def mean_of_all(means: Iterable[Means]) -> dict[str, tuple[float, ...]]:
    """Return the mean of each channel over all images, whose order matters in the last bit."""
    sums: dict[str, NDArray[np.float64]] = {}
    images = 0
    for found in means:
        images += 1
        for name, values in found.items():
            sums[name] = sums[name] + values if name in sums else values
    return {name: tuple(float(f"{value / images:.{_DIGITS}g}") for value in values) for name, values in sums.items()}
