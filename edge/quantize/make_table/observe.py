"""One streaming pass over the images: a histogram of each tensor that can be quantized, the peak of every other one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from edge.calibrate.observations import Observations, largest_of_both
from edge.calibrate.observer import Observer
from edge.protocols import ObservingEngine
from edge.quantize.feed import run_stills
from edge.quantize.make_table.images import CalibrationImage
from edge.types import MagnitudeCounts, ModelSpec, Observed

__all__ = ["observe"]


def observe(
    spec: ModelSpec,
    images: Sequence[CalibrationImage],
    engine: ObservingEngine,
    *,
    names: Sequence[str],
    peaks_of: Sequence[str],
    on_image: Callable[[], None],
) -> Observations:
    """Return what the model's tensors were on `images`; neither their order nor the engine's batch matters.

    Args:
        spec: the float model.
        images: to look at.
        engine: gives `names` or counts of them, and the largest |x| of `peaks_of`.
        names: tensors to count.
        peaks_of: tensors whose largest |x| is kept.
        on_image: called after each image.

    Raises:
        EdgeError: if an image cannot be decoded, inference fails, or a tensor of `names` is not finite.
    """
    observer, peaks = Observer(), dict.fromkeys(peaks_of, 0.0)
    for placed, tensors in run_stills([image.path for image in images], engine):
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
