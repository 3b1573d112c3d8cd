"""Accuracy of a model on labelled images, through exactly the runtime's preprocess, engine and decode."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.engine.kind import EngineKind
from edge.errors import DatasetError
from edge.evaluate.coco_map import Accumulator, Accuracy
from edge.evaluate.cocotools import map_by_pycocotools
from edge.evaluate.labels import open_labels
from edge.evaluate.truth import GroundTruth
from edge.media.stills import list_images
from edge.model.file import read_model_file
from edge.model.inspect import ModelOverrides, inspect_file
from edge.quantize.crew import Crew, Here
from edge.quantize.detections import Detecting
from edge.quantize.forms import Forms
from edge.quantize.precision import ComputedPrecision, computed_precision
from edge.quantize.stills import UnreadImage
from edge.types import Detections, ModelSpec, Precision

__all__ = ["Evaluation", "EvaluationOptions", "evaluate_model"]

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


def evaluate_model(
    options: EvaluationOptions,
    kind: EngineKind,
    *,
    on_image: Callable[[], None] = lambda: None,
    crew: Crew | None = None,
) -> Evaluation:
    """Return the mAP of a model on a set of images.

    Args:
        options: model, images, labels, precision, table.
        kind: of the engine that runs it.
        on_image: called after each image.
        crew: who does the work; None: this process.

    Raises:
        EdgeError: if model, images, labels, precision or table cannot be used.
    """
    file = read_model_file(options.model)
    spec = inspect_file(file, overrides=options.overrides)
    paths = _images_by_stem(options.images)
    labels = open_labels(options.labels, spec.labels)
    computed = computed_precision(spec, precision=options.precision, table=options.table, graph=file.graph)
    forms = Forms(spec, computed.table, file=file)
    work = Detecting(kind=kind, forms=forms, max_batch=_BATCH, precision=computed.precision)
    accumulator = Accumulator()
    kept: dict[str, tuple[Detections, GroundTruth]] = {}
    with (crew or Here()).take_on(work) as job:
        started = time.monotonic()
        found_on = job.each([UnreadImage(path) for path in paths], on_item=on_image)
        for path, (size, found) in zip(paths, found_on, strict=True):
            truth = labels.truth(path.stem, size)
            accumulator.add(path.stem, found, truth)
            if options.is_cross_checked:
                kept[path.stem] = (found, truth)
        engine = job.engine
    return Evaluation(
        spec=spec,
        precision=computed.precision,
        int8_mac_share=_int8_mac_share(forms, computed),
        table=options.table,
        engine=engine,
        accuracy=accumulator.result(),
        unlabelled=labels.unlabelled,
        left_out=labels.left_out,
        elapsed_s=time.monotonic() - started,
        pycocotools=_by_pycocotools(kept) if options.is_cross_checked else None,
    )


def _int8_mac_share(forms: Forms, computed: ComputedPrecision) -> float | None:
    """Return how much of the model is in INT8 by its pairs or its table; whatever form the engine has asked for."""
    return forms.mac_share_int8 if computed.precision is Precision.INT8 else None


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
