"""Detections on still images through exactly the runtime's preprocess, engine and decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from edge.protocols import Engine
from edge.quantize.feed import run_stills
from edge.types import Detections, FrameHeader, ModelSpec
from edge.vision.detect import Detector
from edge.vision.heads import Head

__all__ = ["coco_detector", "detect_all"]

# COCO's own protocol: every candidate counts, down to where it no longer changes the precision-recall curve.
SCORE_THRESHOLD = 0.001
IOU_THRESHOLD = 0.65
MAX_DETECTIONS = 300


def detect_all(paths: Sequence[Path], engine: Engine, detector: Detector) -> Iterator[tuple[FrameHeader, Detections]]:
    """Yield the detections on each image, in order.

    Raises:
        DatasetError: if an image cannot be read.
        EngineError: if an inference failed.
    """
    for placed, output in run_stills(paths, engine):
        found = detector.detect(output, [letterbox for _, letterbox in placed])
        yield from zip((header for header, _ in placed), found, strict=True)


def coco_detector(spec: ModelSpec) -> Detector:
    """Return the detector that COCO's protocol wants."""
    return Detector(
        head=Head(family=spec.family, size=spec.preprocess.size, strides=spec.strides, is_multi_label=True),
        score_threshold=SCORE_THRESHOLD,
        iou_threshold=IOU_THRESHOLD,
        max_detections=MAX_DETECTIONS,
    )
