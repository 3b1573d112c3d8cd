"""Accuracy of a model on labelled images, through exactly the runtime's preprocess, engine and decode."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.errors import DatasetError, SourceError
from edge.evaluate.coco_map import Accumulator, Accuracy
from edge.evaluate.cocotools import map_by_pycocotools
from edge.evaluate.labels import open_labels
from edge.evaluate.truth import GroundTruth
from edge.media.stills import StillSource, list_images
from edge.model.inspect import ModelOverrides, inspect_model
from edge.quantize.arithmetic import choose_arithmetic
from edge.quantize.detections import detect_all
from edge.quantize.engines import make_engine
from edge.types import Detections, ModelSpec, Precision, StreamId
from edge.vision.detect import Detector
from edge.vision.heads import Head

__all__ = ["Evaluation", "EvaluationOptions", "coco_detector", "evaluate_model"]

# COCO's own protocol: every candidate counts, down to where it no longer changes the precision-recall curve.
SCORE_THRESHOLD = 0.001
IOU_THRESHOLD = 0.65
MAX_DETECTIONS = 300
_BATCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """What to evaluate; `labels` is a folder of YOLO text files or a COCO instances file.

    `table` is a calibration table, which makes a float model run in INT8; `precision` None: int8 with a table or in a
    model that carries Q/DQ pairs, else fp32. With `is_cross_checked` pycocotools measures the same detections as well.
    """

    model: Path
    images: Path
    labels: Path
    precision: Precision | None = None
    table: Path | None = None
    overrides: ModelOverrides | None = None
    is_cross_checked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What came out of it; `unlabelled` are images without labels, taken as empty; `left_out` are labelled boxes of
    classes that the model does not know.

    `pycocotools` is its mAP50-95 and mAP50 of the same detections, where asked for. `int8_mac_share` is how much of the
    multiply-accumulates ran in INT8, None in float.
    """

    spec: ModelSpec
    precision: Precision
    int8_mac_share: float | None
    table: Path | None
    engine: str
    accuracy: Accuracy
    unlabelled: tuple[str, ...]
    left_out: int
    elapsed_s: float
    pycocotools: tuple[float, float] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        accuracy = self.accuracy
        return {
            "model": self.spec.name,
            "model_sha256": self.spec.sha256,
            "precision": self.precision.value,
            "int8_mac_share": None if self.int8_mac_share is None else round(self.int8_mac_share, 5),
            "table": None if self.table is None else str(self.table),
            "engine": self.engine,
            "images": accuracy.images,
            "boxes": accuracy.boxes,
            "unlabelled": len(self.unlabelled),
            "left_out": self.left_out,
            "map50_95": round(accuracy.map50_95, 5),
            "map50": round(accuracy.map50, 5),
            "pycocotools": None if self.pycocotools is None else [round(value, 5) for value in self.pycocotools],
            "seconds": round(self.elapsed_s, 2),
            "per_class": {
                self.spec.labels[one.class_id]: {
                    "map50_95": round(one.map50_95, 5),
                    "map50": round(one.map50, 5),
                    "boxes": one.boxes,
                }
                for one in accuracy.per_class
            },
        }


def evaluate_model(options: EvaluationOptions, *, on_image: Callable[[int, int], None] | None = None) -> Evaluation:
    """Return the mAP of a model on a set of images.

    Args:
        options: model, images, labels, precision, table.
        on_image: called with the number of images done and of all images.

    Raises:
        EdgeError: if model, images, labels, precision or table cannot be used.
    """
    spec = inspect_model(options.model, overrides=options.overrides)
    paths = _images_by_stem(options.images)
    labels = open_labels(options.labels, spec.labels)
    arithmetic = choose_arithmetic(spec, precision=options.precision, table=options.table)
    engine = make_engine(spec, precision=arithmetic.precision, max_batch=_BATCH, content=arithmetic.model)
    source = StillSource(StreamId("images"), paths, preprocess=spec.preprocess)
    accumulator, started = Accumulator(), time.monotonic()
    kept: dict[str, tuple[Detections, GroundTruth]] = {}
    try:
        source.open()
        for header, found in detect_all(source, engine, coco_detector(spec)):
            stem = paths[header.frame - 1].stem
            truth = labels.truth(stem, header.source_size)
            accumulator.add(stem, found, truth)
            if options.is_cross_checked:
                kept[stem] = (found, truth)
            if on_image is not None:
                on_image(header.frame, len(paths))
        name = engine.name
    except SourceError as error:  # a folder of images is data of the user's, not a stream that may come back
        raise DatasetError(error.problem, hint="mend or remove it") from error
    finally:
        source.close()
        engine.close()
    return Evaluation(
        spec=spec,
        precision=arithmetic.precision,
        int8_mac_share=arithmetic.int8_mac_share,
        table=options.table,
        engine=name,
        accuracy=accumulator.result(),
        unlabelled=labels.unlabelled,
        left_out=labels.left_out,
        elapsed_s=time.monotonic() - started,
        pycocotools=_by_pycocotools(kept) if options.is_cross_checked else None,
    )


def _images_by_stem(folder: Path) -> list[Path]:
    paths = list_images(folder)
    first_of: dict[str, Path] = {}
    for path in paths:
        other = first_of.setdefault(path.stem, path)
        if other is not path:
            raise DatasetError(
                f"{folder}: {other.name} and {path.name}: labels are found by name, which does not tell them apart",
                hint="rename or remove one",
            )
    return paths


def _by_pycocotools(kept: dict[str, tuple[Detections, GroundTruth]]) -> tuple[float, float]:
    detected = {stem: found for stem, (found, _) in kept.items()}
    return map_by_pycocotools(detected, {stem: truth for stem, (_, truth) in kept.items()})


def coco_detector(spec: ModelSpec) -> Detector:
    """Return the detector that COCO's protocol wants."""
    return Detector(
        head=Head(family=spec.family, size=spec.preprocess.size, strides=spec.strides, is_multi_label=True),
        score_threshold=SCORE_THRESHOLD,
        iou_threshold=IOU_THRESHOLD,
        max_detections=MAX_DETECTIONS,
    )
