"""Tensors of the float model on images, observed or averaged: where ranges and corrected biases come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.histogram import Observer
from edge.calibrate.observations import Observations, largest_of_both
from edge.media.images import read_image
from edge.protocols import AveragingEngine, ObservingEngine
from edge.quantize.crew import ReadImage
from edge.quantize.feed import StillsTool, StillsWork, run_stills
from edge.quantize.stills import StillImage
from edge.types import MagnitudeCounts, ModelSpec, Observed

__all__ = ["Averager", "MeansOfEach", "Observing", "mean_of_all", "observe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observing(StillsWork):
    """Their observations, in parts that merge exactly."""

    names: tuple[str, ...]  # tensors to count
    peaks_of: tuple[str, ...]  # tensors whose largest |x| is kept

    def open(self) -> _Observer:
        spec, content = self.forms.spec, self.forms.float_model()
        return _Observer(
            self.kind.observing(spec, self.names, largest_of=self.peaks_of, max_batch=self.max_batch, content=content),
            self,
        )


class _Observer(StillsTool[ObservingEngine]):
    def __init__(self, engine: ObservingEngine, work: Observing) -> None:
        super().__init__(engine)
        self._work = work

    def run(
        self, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]
    ) -> Iterator[Observations]:
        spec, names, peaks_of = self._work.forms.spec, self._work.names, self._work.peaks_of
        yield observe(spec, items, self._engine, names=names, peaks_of=peaks_of, on_image=on_item, read=read)


def observe(
    spec: ModelSpec,
    images: Sequence[StillImage],
    engine: ObservingEngine,
    *,
    names: Sequence[str],
    peaks_of: Sequence[str],
    on_image: Callable[[], None],
    read: ReadImage = read_image,
) -> Observations:
    """Return what the tensors of a float model were; neither the order of `images` nor the engine's batch matters.
    Raises `EdgeError` if an image cannot be decoded, inference fails, or a tensor of `names` is not finite.

    `engine`: gives `names` or counts of them, and the largest |x| of `peaks_of`.
    """
    observer, peaks = Observer(), dict.fromkeys(peaks_of, 0.0)
    for placed, tensors in run_stills([image.path for image in images], engine, read=read):
        for name in names:
            observer.observe(name, tensors[name])
        peaks = largest_of_both(peaks, _peaks(tensors, peaks))
        for _ in placed:
            on_image()
    return Observations(
        model_sha256=spec.sha256,
        preprocess_sha256=spec.preprocess.sha256,
        image_sha256s=tuple(sorted(image.sha256 for image in images)),
        histograms=observer.histograms,
        peaks=peaks,
    )


def _peaks(tensors: Mapping[str, Observed], names: Iterable[str]) -> dict[str, float]:
    return {name: _largest(tensors[name]) for name in names}


def _largest(values: Observed) -> float:
    assert not isinstance(values, MagnitudeCounts), "of what is not counted there are values"
    return float(values.max())


_DIGITS = 5  # in a table; far more than the images say

Means = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeansOfEach(StillsWork):
    """The mean of each channel of `names`, which are tensors, image by image."""

    names: tuple[str, ...]

    def open(self) -> Averager:
        spec, content = self.forms.spec, self.forms.float_model()
        engine = self.kind.averaging(spec, self.names, max_batch=self.max_batch, content=content)
        return Averager(engine, self.names)


class Averager(StillsTool[AveragingEngine]):
    """Gives the means of channels of `names`, float64 (C,), image by image."""

    def __init__(self, engine: AveragingEngine, names: Sequence[str]) -> None:
        super().__init__(engine)
        self._names = tuple(names)

    def run(self, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]) -> Iterator[Means]:
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
