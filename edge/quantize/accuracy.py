"""Accuracy of a model on labelled images, through exactly the runtime's preprocess, engine and decode."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.engine.kind import EngineKind
from edge.errors import DatasetError
from edge.evaluate.class_names import ClassBlind
from edge.evaluate.coco_map import Accumulator, Accuracy
from edge.evaluate.labels import open_labels
from edge.media.images import list_images
from edge.model.graph import ModelFile, read_model_file
from edge.model.inspect import inspect_file
from edge.model.tasks import thresholds_in_vain
from edge.quantize.crew import Crew, Here
from edge.quantize.feed import Detecting, coco_detector
from edge.quantize.forms import Forms
from edge.quantize.precision import ComputedPrecision, computed_precision
from edge.quantize.stills import StillImage, each_decoded
from edge.types import ModelSpec, Precision

__all__ = ["Evaluation", "EvaluationOptions", "evaluate_model"]

_BATCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """Inputs of an evaluation; `labels` is a folder of YOLO text files or a COCO instances file.

    `table` is a calibration table, which makes a float model run in INT8; `precision` None: int8 with a table or in a
    model that carries Q/DQ pairs, else fp32; in float such a model runs without its pairs.
    """

    model: Path
    images: Path
    labels: Path
    precision: Precision | None = None
    table: Path | None = None
    is_skipping_undecodable: bool = False  # leave out files that cannot be decoded, instead of refusing them


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of an evaluation; `unlabelled` are images without labels, taken as empty; `left_out` are labelled boxes of
    classes that the model does not know; `classes_by` and `notes` as `edge.evaluate.truth.Labels` has them.

    `int8_mac_share` is how much of the multiply-accumulates ran in INT8, None in float.
    """

    spec: ModelSpec
    precision: Precision
    int8_mac_share: float | None
    table: Path | None
    engine: str
    accuracy: Accuracy
    unlabelled: tuple[str, ...]
    left_out: int
    classes_by: str
    notes: tuple[str, ...]
    elapsed_s: float
    undecodable: tuple[Path, ...] = ()  # files that were left out

    def as_json(self) -> dict[str, Any]:
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
            "classes_by": self.classes_by,
            "notes": list(self.notes),
            "map50_95": round(accuracy.map50_95, 5),
            "map50": round(accuracy.map50, 5),
            "seconds": round(self.elapsed_s, 2),
            "per_class": [  # a list, for a model may have several of one label
                {
                    "class_id": one.class_id,
                    "label": self.spec.labels[one.class_id],
                    "map50_95": round(one.map50_95, 5),
                    "map50": round(one.map50, 5),
                    "boxes": one.boxes,
                }
                for one in accuracy.per_class
            ],
        }


def evaluate_model(
    options: EvaluationOptions,
    kind: EngineKind,
    *,
    on_image: Callable[[], None] = lambda: None,
    crew: Crew | None = None,
) -> Evaluation:
    """`on_image`: called after each image. `crew`: does the work; None: this process.
    Raises `EdgeError` if model, images, labels, precision or table cannot be used.
    """
    file = read_model_file(options.model)
    spec = inspect_file(file)
    paths = _images_by_stem(options.images)
    labels = open_labels(options.labels, spec.labels, images=options.images)
    forms, computed = _forms(file, spec, options)
    seen, undecodable = each_decoded(
        paths, lambda picture: None, is_skipping_undecodable=options.is_skipping_undecodable
    )
    work = Detecting(kind=kind, forms=forms, max_batch=_BATCH, precision=computed.precision)
    accumulator, class_blind = Accumulator(), ClassBlind(spec.labels, is_int8=computed.precision is Precision.INT8)
    with (crew or Here()).take_on(work) as job:
        started = time.monotonic()
        found_on = job.each([StillImage(path) for path in seen], on_item=on_image)
        for path, (size, found) in zip(seen, found_on, strict=True):
            truth = labels.truth(path.stem, size)
            accumulator.add(path.stem, found, truth)
            class_blind.add(found, truth)
        engine = job.engine
    class_blind.require_same_classes(str(options.labels))
    return Evaluation(
        spec=spec,
        precision=computed.precision,
        int8_mac_share=forms.mac_share_int8 if computed.precision is Precision.INT8 else None,
        table=options.table,
        engine=engine,
        accuracy=accumulator.result(),
        unlabelled=labels.unlabelled,
        left_out=labels.left_out,
        classes_by=labels.classes_by,
        notes=(*labels.notes, *class_blind.notes, *_notes_of(spec)),
        elapsed_s=time.monotonic() - started,
        undecodable=undecodable,
    )


def _notes_of(spec: ModelSpec) -> Iterator[str]:
    if in_vain := thresholds_in_vain(spec.suppression, coco_detector(spec)):
        yield f"{spec.name} suppresses inside, so that this is not the mAP of all that it finds: {'; '.join(in_vain)}"


def _forms(file: ModelFile, spec: ModelSpec, options: EvaluationOptions) -> tuple[Forms, ComputedPrecision]:
    """Return what is run; in float, a model that carries Q/DQ pairs without them."""
    forms = Forms(spec, file=file)
    if spec.is_quantized and options.table is None and options.precision in (Precision.FP32, Precision.FP16):
        return forms.reference(), ComputedPrecision(precision=options.precision)
    computed = computed_precision(spec, precision=options.precision, table=options.table, graph=file.graph)
    return Forms(spec, computed.table, file=file), computed


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
