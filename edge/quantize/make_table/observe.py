"""One streaming pass over the images: a histogram of each tensor that can be quantized, the peak of every other one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edge.calibrate.observations import Observations, largest_of_both
from edge.calibrate.observer import Observer
from edge.media.images import read_image
from edge.protocols import ObservingEngine
from edge.quantize.crew import ReadImage
from edge.quantize.feed import run_stills
from edge.quantize.stills import StillImage
from edge.quantize.stills_tool import StillsTool, StillsWork
from edge.types import MagnitudeCounts, ModelSpec, Observed

__all__ = ["Observing", "observe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observing(StillsWork):
    """Their observations, in parts that merge exactly.

    Attributes:
        names: tensors to count.
        peaks_of: tensors whose largest |x| is kept.
    """

    names: tuple[str, ...]
    peaks_of: tuple[str, ...]

    def open(self) -> _Observer:
        """Return an engine that is observed."""
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
    """Return what the model's tensors were on `images`; neither their order nor the engine's batch matters.

    Args:
        spec: the float model.
        images: to look at.
        engine: gives `names` or counts of them, and the largest |x| of `peaks_of`.
        names: tensors to count.
        peaks_of: tensors whose largest |x| is kept.
        on_image: called after each image.
        read: gives an image.

    Raises:
        EdgeError: if an image cannot be decoded, inference fails, or a tensor of `names` is not finite.
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
