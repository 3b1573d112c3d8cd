"""Detections on still images through exactly the runtime's preprocess, engine and decode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edge.engine.kind import EngineRequest
from edge.engine.select import build_and_load
from edge.protocols import Engine
from edge.quantize.crew import ReadImage
from edge.quantize.feed import run_stills
from edge.quantize.stills import StillImage
from edge.quantize.stills_tool import StillsTool, StillsWork
from edge.types import Detections, ImageSize, ModelSpec, Precision
from edge.vision.detect import Detector
from edge.vision.heads import Head

__all__ = ["Detecting", "coco_detector"]

# COCO's own protocol: every candidate counts, down to where it no longer changes the precision-recall curve.
SCORE_THRESHOLD = 0.001
IOU_THRESHOLD = 0.65
MAX_DETECTIONS = 300

Seen = tuple[ImageSize, Detections]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detecting(StillsWork):
    """The size of each image, and what is detected on it by COCO's protocol, in `precision`."""

    precision: Precision

    def open(self) -> _Detecting:
        """Return an engine with a decoder behind it."""
        options = self.kind.options_type()
        request = EngineRequest(precision=self.precision, max_batch=self.max_batch, options=options)
        return _Detecting(build_and_load(self.kind, self.forms, request), coco_detector(self.forms.spec))


class _Detecting(StillsTool[Engine]):
    def __init__(self, engine: Engine, detector: Detector) -> None:
        super().__init__(engine)
        self._detector = detector

    def run(self, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]) -> Iterator[Seen]:
        for placed, output in run_stills([image.path for image in items], self._engine, read=read):
            found = self._detector.detect(output, [letterbox for _, letterbox in placed])
            for (header, _), detections in zip(placed, found, strict=True):
                yield header.source_size, detections
                on_item()


def coco_detector(spec: ModelSpec) -> Detector:
    """Return the detector that COCO's protocol wants."""
    return Detector(
        head=Head(family=spec.family, size=spec.preprocess.size, strides=spec.strides, is_multi_label=True),
        score_threshold=SCORE_THRESHOLD,
        iou_threshold=IOU_THRESHOLD,
        max_detections=MAX_DETECTIONS,
    )
