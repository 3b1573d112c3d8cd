"""`golden.json` of a release: which images, and what the float model found on them (`edge.golden/1`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge.errors import DeployError
from edge.types import Detections

__all__ = ["GoldenImage", "GoldenSet", "decode_golden", "encode_golden"]

_FORMAT = "edge.golden/1"
_DIGITS = 4  # of scores and pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenImage:
    """A picture of the model's input size, letterboxed already, and what the float model found on it."""

    path: str
    detections: Detections


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenSet:
    """What an engine has to find again.

    Attributes:
        model_sha256, preprocess_sha256: of the float model.
        engine: kind and version of what ran it.
        labels: by class id.
        sure_score: from which on a detection counts, see `edge.evaluate.golden`.
        iou_threshold, max_detections: of the suppression, as the pipeline has them.
        images: at least one; paths are those of the release.
    """

    model_sha256: str
    preprocess_sha256: str
    engine: str
    labels: tuple[str, ...]
    sure_score: float
    iou_threshold: float
    max_detections: int
    images: tuple[GoldenImage, ...]

    def __post_init__(self) -> None:
        if not 0 < self.sure_score <= 1 or not 0 <= self.iou_threshold <= 1 or not self.images:
            raise ValueError(f"sure score {self.sure_score}, IoU {self.iou_threshold}, {len(self.images)} images")


def encode_golden(golden: GoldenSet) -> bytes:
    """Return the file's one spelling: one line per detection, so that a difference can be read."""
    head = {
        "format": _FORMAT,
        "model_sha256": golden.model_sha256,
        "preprocess_sha256": golden.preprocess_sha256,
        "engine": golden.engine,
        "labels": list(golden.labels),
        "sure_score": golden.sure_score,
        "iou_threshold": golden.iou_threshold,
        "max_detections": golden.max_detections,
        "detection": ["class_id", "score", "left", "top", "right", "bottom"],
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}," for key, value in head.items()]
    images = ",\n".join(_image_text(image) for image in golden.images)
    return ("{\n" + "\n".join(lines) + '\n  "images": [\n' + images + "\n  ]\n}\n").encode()


def decode_golden(content: bytes) -> GoldenSet:
    """Return what `encode_golden` was given, numbers rounded.

    Raises:
        DeployError: `verify.golden`, if it is something else.
    """
    try:
        values: dict[str, Any] = json.loads(content)
        if values["format"] != _FORMAT:
            raise ValueError(f"format {values['format']!r}, expected {_FORMAT!r}")
        return GoldenSet(
            model_sha256=str(values["model_sha256"]),
            preprocess_sha256=str(values["preprocess_sha256"]),
            engine=str(values["engine"]),
            labels=tuple(map(str, values["labels"])),
            sure_score=float(values["sure_score"]),
            iou_threshold=float(values["iou_threshold"]),
            max_detections=int(values["max_detections"]),
            images=tuple(
                GoldenImage(path=str(one["path"]), detections=_detections(one["detections"]))
                for one in values["images"]
            ),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise DeployError(
            "verify.golden", f"golden.json cannot be read: {error}", hint="bundle the release again"
        ) from None


def _image_text(image: GoldenImage) -> str:
    found = image.detections
    rows = [
        json.dumps([int(class_id), *(round(float(value), _DIGITS) for value in (score, *box))])
        for class_id, score, box in zip(found.class_id, found.score, found.xyxy, strict=True)
    ]
    body = "".join(f"\n      {row}," for row in rows).rstrip(",")
    return f'    {{"path": {json.dumps(image.path)}, "detections": [{body}]}}'


def _detections(rows: list[list[float]]) -> Detections:
    table = np.array(rows, np.float64).reshape(-1, 6)
    if not np.isfinite(table).all():
        raise ValueError("a detection is not finite")
    return Detections(
        xyxy=table[:, 2:].astype(np.float32),
        score=table[:, 1].astype(np.float32),
        class_id=table[:, 0].astype(np.int32),
    )
