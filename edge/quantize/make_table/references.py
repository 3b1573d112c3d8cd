"""What the float model finds on the images that choices are tried on: errors are distances from that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edge.engine.kind import EngineKind, EngineRequest
from edge.engine.select import build_and_load
from edge.errors import DatasetError
from edge.evaluate.parity import best_candidates, compare_candidates
from edge.media.stills import StillSource
from edge.protocols import Engine
from edge.quantize.crew import Crew, ReadImage
from edge.quantize.feed import canvases_of, outputs_of
from edge.quantize.forms import Forms
from edge.quantize.stills import StillImage
from edge.quantize.stills_tool import StillsTool, StillsWork
from edge.types import ModelSpec, Precision, StreamId
from edge.vision.heads import Candidates, Head, decode_output

__all__ = ["THRESHOLD", "FloatReference", "References", "above", "head_of", "references_of"]

THRESHOLD = 0.05  # candidates below say little, and there are very many
_BEST = 64  # candidates of an image, whatever their scores
_LOWEST = 1e-4  # of those scores: even an empty image has higher ones


@dataclass(frozen=True, slots=True)
class FloatReference:
    """What the float model finds on an image: what is surely there, the best of all, and above which score to look."""

    sure: Candidates
    best: Candidates
    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Those of some images in their order; `weight` is the mean one of what is surely there (`Parity.error_for`)."""

    images: tuple[StillImage, ...]
    by_image: tuple[FloatReference, ...]
    weight: float


def references_of(kind: EngineKind, forms: Forms, images: Sequence[StillImage], *, crew: Crew) -> References:
    """Return what the float model finds on `images`.

    Raises:
        DatasetError: if an image cannot be used, or nothing at all is found on any of them.
        EngineError: if the float model cannot be run.
    """
    family = forms.spec.family
    with crew.take_on(_Referring(kind=kind, forms=forms, max_batch=1)) as job:
        found = tuple(job.each(images, on_item=lambda: None))
    weight = sum(compare_candidates(one.sure, one.sure, family).weight for one in found) / len(found)
    if not weight:
        raise DatasetError(
            f"{forms.spec.name} finds nothing at all on {len(images)} images, so that nothing can be compared",
            hint="calibrate with images of what the cameras will see; look at edge-deploy inspect",
        )
    return References(images=tuple(images), by_image=found, weight=weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Referring(StillsWork):
    """The reference of each image."""

    def open(self) -> _Referrer:
        options = self.kind.options_type()
        request = EngineRequest(precision=Precision.FP32, max_batch=1, options=options, is_one_of_many=True)
        return _Referrer(build_and_load(self.kind, self.forms, request), head_of(self.forms.spec))


class _Referrer(StillsTool[Engine]):
    def __init__(self, engine: Engine, head: Head) -> None:
        super().__init__(engine)
        self._head = head

    def run(
        self, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]
    ) -> Iterator[FloatReference]:
        preprocess = self._engine.preprocess
        source = StillSource(StreamId("images"), [one.path for one in items], preprocess=preprocess, read=read)
        source.open()
        for output in outputs_of(canvases_of(source, preprocess), self._engine):
            yield _reference_of(decode_output(output, self._head, score_threshold=_LOWEST))
            on_item()


def head_of(spec: ModelSpec) -> Head:
    """Return how candidates are decoded, here and where choices are tried."""
    return Head(family=spec.family, size=spec.preprocess.size, strides=spec.strides, is_multi_label=True)


def above(found: Candidates, threshold: float) -> Candidates:
    """Return those with a higher score."""
    return found.take(np.flatnonzero(found.score > threshold))


def _reference_of(found: Candidates) -> FloatReference:
    best = best_candidates(found, _BEST)
    lowest = float(best.score.min(initial=THRESHOLD))
    return FloatReference(sure=above(found, THRESHOLD), best=best, threshold=lowest / math.e)
