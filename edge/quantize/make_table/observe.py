"""Tensors of the float model on images, observed or averaged: where ranges and corrected biases come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.histogram import Observer
from edge.calibrate.observations import Observations, largest_of_both
from edge.protocols import AveragingEngine, ObservingEngine
from edge.quantize.crew import ReadImage
from edge.quantize.feed import StillsWork, run_stills
from edge.quantize.stills import StillImage
from edge.types import MagnitudeCounts, Observed

__all__ = ["MeansOfEach", "Observing", "mean_of_all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observing(StillsWork[ObservingEngine, Observations]):
    """Their observations, in parts that merge exactly: neither the order of the images nor the batch matters.

    `run` raises `EdgeError` if an image cannot be decoded, inference fails, or a tensor of `names` is not finite.
    """

    names: tuple[str, ...]  # tensors to count
    peaks_of: tuple[str, ...]  # tensors whose largest |x| is kept

    def engine(self) -> ObservingEngine:
        spec, content = self.forms.spec, self.forms.float_model()
        return self.kind.observing(
            spec, self.names, largest_of=self.peaks_of, max_batch=self.max_batch, content=content
        )

    def run(
        self, engine: ObservingEngine, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]
    ) -> Iterator[Observations]:
        spec, observer, peaks = self.forms.spec, Observer(), dict.fromkeys(self.peaks_of, 0.0)
        for placed, tensors in run_stills([image.path for image in items], engine, read=read):
            for name in self.names:
                observer.observe(name, tensors[name])
            peaks = largest_of_both(peaks, {name: _largest(tensors[name]) for name in peaks})
            for _ in placed:
                on_item()
        yield Observations(
            model_sha256=spec.sha256,
            preprocess_sha256=spec.preprocess.sha256,
            image_sha256s=tuple(sorted(image.sha256 for image in items)),
            histograms=observer.histograms,
            peaks=peaks,
        )


def _largest(values: Observed) -> float:
    assert not isinstance(values, MagnitudeCounts), "of what is not counted there are values"
    return float(values.max())


_DIGITS = 5  # in a table; far more than the images say

Means = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeansOfEach(StillsWork[AveragingEngine, Means]):
    """The mean of each channel of `names`, which are tensors, float64 (C,), image by image."""

    names: tuple[str, ...]

    def engine(self) -> AveragingEngine:
        spec, content = self.forms.spec, self.forms.float_model()
        return self.kind.averaging(spec, self.names, max_batch=self.max_batch, content=content)

    def run(
        self, engine: AveragingEngine, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]
    ) -> Iterator[Means]:
        for placed, means in run_stills([image.path for image in items], engine, read=read):
            for row in range(len(placed)):
                yield {name: means[name][row].copy() for name in self.names}
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
