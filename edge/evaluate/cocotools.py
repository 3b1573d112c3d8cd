"""The same measure by pycocotools, which everybody compares with; the only module that imports it, when it is used."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from typing import Any

from edge.errors import MissingDependencyError
from edge.evaluate.truth import GroundTruth
from edge.types import Detections

__all__ = ["map_by_pycocotools"]


def map_by_pycocotools(detected: Mapping[str, Detections], truths: Mapping[str, GroundTruth]) -> tuple[float, float]:
    """Return mAP50-95 and mAP50 of detections against `truths`, both by image id; -1 where nothing is labelled.

    Raises:
        MissingDependencyError: if pycocotools is not installed.
    """
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError as error:
        raise MissingDependencyError("pycocotools is not importable", hint="pip install edge-deploy[coco]") from error
    numbers = {image_id: number for number, image_id in enumerate(sorted(truths), 1)}
    with contextlib.redirect_stdout(io.StringIO()):
        reference = COCO()
        reference.dataset = _instances(truths, numbers, detected)
        reference.createIndex()
        results = _results(detected, numbers)
        found = reference.loadRes(results) if results else COCO()
        evaluation = COCOeval(reference, found, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0]), float(evaluation.stats[1])


def _instances(
    truths: Mapping[str, GroundTruth], numbers: Mapping[str, int], detected: Mapping[str, Detections]
) -> dict[str, Any]:
    annotations: list[dict[str, Any]] = [
        {"image_id": numbers[image_id], "category_id": int(class_id) + 1, "bbox": _xywh(box), "iscrowd": int(crowd)}
        for image_id, truth in truths.items()
        for box, class_id, crowd in zip(truth.xyxy.tolist(), truth.class_id, truth.is_crowd, strict=True)
    ]
    for number, annotation in enumerate(annotations, 1):
        _, _, width, height = annotation["bbox"]
        annotation.update(id=number, area=width * height)
    classes = {a["category_id"] for a in annotations} | {int(c) + 1 for d in detected.values() for c in d.class_id}
    return {
        "info": {},
        "images": [{"id": number} for number in numbers.values()],
        "annotations": annotations,
        "categories": [{"id": category_id, "name": str(category_id)} for category_id in sorted(classes)],
    }


def _results(detected: Mapping[str, Detections], numbers: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {"image_id": numbers[image_id], "category_id": int(class_id) + 1, "bbox": _xywh(box), "score": float(score)}
        for image_id, detections in detected.items()
        for box, class_id, score in zip(detections.xyxy.tolist(), detections.class_id, detections.score, strict=True)
    ]


def _xywh(xyxy: list[float]) -> list[float]:
    left, top, right, bottom = xyxy
    return [left, top, right - left, bottom - top]
