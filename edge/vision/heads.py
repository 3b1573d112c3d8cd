"""Raw output of a YOLO head -> candidate boxes -> the detections of each frame: decode, suppress, undo the letterbox.

Scores are filtered before anything else is computed.

Layouts, for a batch of B, A cells or anchors and K classes (see `edge.types.HeadFamily`):

    yolov5    (B, A, 5+K)   cx cy w h in canvas pixels, objectness, K scores
    yolov8    (B, 4+K, A)   cx cy w h in canvas pixels, K scores
    yolov10   (B, A, 6)     x1 y1 x2 y2 in canvas pixels, score, class_id
    yolox     (B, A, 5+K)   cx cy as offset in cells, log w h in cells, objectness, K scores

Columns or rows that follow the K scores (a mask's coefficients, keypoints) are let be. Turned boxes have an angle in
the last one, and are cx cy w h in each layout: what is decoded is the upright box around each.

An engine may have picked the cells out already (`edge.types.CandidateRows`); the rest is the same.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.errors import ModelError, TensorMismatchError
from edge.types import OBB, CandidateRows, Detections, EngineOutput, HeadFamily, ImageSize, Letterbox, ModelSpec
from edge.vision.boxes import kept_by_nms, source_from_canvas_xyxy

__all__ = ["Candidates", "Detector", "Head", "cells_of", "decode_output", "has_scores", "head_of", "xyxy_from_cxcywh"]

_MAX_CLASSES = 1 << 16

FloatArray = NDArray[np.float32]
_Scored = tuple[NDArray[np.int64], FloatArray, NDArray[np.int32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Parameters of decoding: the layout, the canvas, and the strides in the order of their cells.

    With `is_multi_label` a cell gives a candidate for each class above the threshold (as COCO's protocol wants it for
    measuring), otherwise only for its best class (as a consumer of detections wants it). See docs/adr/0003.

    `classes` are those that have a score; None: all that follows the box is one. `is_turned` as above.
    """

    family: HeadFamily
    size: ImageSize
    strides: tuple[int, ...] = ()
    is_multi_label: bool = False
    classes: int | None = None
    is_turned: bool = False

    @property
    def scores(self) -> slice:
        """Where the scores of a cell lie."""
        first = 4 if self.family is HeadFamily.YOLOV8 else 5
        return slice(first, None if self.classes is None else first + self.classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Boxes of a whole batch before suppression."""

    row: NDArray[np.int64]  # int64 (M,), which frame of the batch
    cell: NDArray[np.int64]  # int64 (M,), which cell or anchor of the output
    xyxy: FloatArray  # float32 (M, 4), canvas pixels
    score: FloatArray  # float32 (M,)
    class_id: NDArray[np.int32]  # int32 (M,)

    def take(self, index: NDArray[np.int64]) -> Candidates:
        return Candidates(
            row=self.row[index],
            cell=self.cell[index],
            xyxy=self.xyxy[index],
            score=self.score[index],
            class_id=self.class_id[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Reads detections out of a head's output; pure, so that evaluation and service share it.

    `refuses_nan_of`: name of a model that is measured; None: a service does not look at every number of each frame.
    """

    head: Head
    score_threshold: float
    iou_threshold: float
    max_detections: int
    refuses_nan_of: str | None = None

    def detect(
        self,
        output: EngineOutput,
        letterboxes: Sequence[Letterbox],
        *,
        class_ids: Sequence[NDArray[np.int32] | None] | None = None,
    ) -> list[Detections]:
        """Return the detections of each frame, in pixels of its source, highest score first.

        `output`: of the engine, of B frames. `letterboxes`: of the B frames. `class_ids`: of the B frames, the classes
        that are wanted, None for all; None: all classes of all frames. What is not wanted does not count towards
        `max_detections`. Raises `ModelError` if the output holds NaN, and that is refused.
        """
        if self.refuses_nan_of is not None and np.isnan(_numbers(output)).any():
            raise ModelError(
                f"{self.refuses_nan_of}: the model's output is not a number (NaN) in places, so that "
                "what it finds means nothing",
                hint="look for NaN among its weights, or for what overflows in this precision, and export it again",
            )
        candidates = decode_output(output, self.head, score_threshold=self.score_threshold)
        found = candidates if class_ids is None else _of_classes(candidates, class_ids)
        kept = self._kept(found)
        kept = kept.take(found.row.take(kept).argsort(kind="stable"))
        row, score, class_id = found.row.take(kept), found.score.take(kept), found.class_id.take(kept)
        xyxy = source_from_canvas_xyxy(found.xyxy.take(kept, axis=0), letterboxes, row)
        ends = np.searchsorted(row, np.arange(len(letterboxes) + 1)).tolist()
        spans = [slice(first, min(end, first + self.max_detections)) for first, end in itertools.pairwise(ends)]
        # Copies: a result is kept for longer than the batch.
        return [
            Detections(xyxy=xyxy[one].copy(), score=score[one].copy(), class_id=class_id[one].copy()) for one in spans
        ]

    def _kept(self, found: Candidates) -> NDArray[np.int64]:
        """Return the indices of what is not suppressed, highest score first."""
        if self.head.family is HeadFamily.YOLOV10:  # trained to give one box per object: suppression would only harm
            return np.argsort(-found.score, kind="stable")
        group = found.row * _MAX_CLASSES + found.class_id
        return kept_by_nms(found.xyxy, found.score, group, iou_threshold=self.iou_threshold)


def _of_classes(found: Candidates, class_ids: Sequence[NDArray[np.int32] | None]) -> Candidates:
    if all(wanted is None for wanted in class_ids):
        return found
    kept: NDArray[np.bool_] = np.ones(len(found.row), np.bool_)
    for row, wanted in enumerate(class_ids):
        if wanted is not None:
            kept &= (found.row != row) | np.isin(found.class_id, wanted)
    return found.take(np.flatnonzero(kept))


def head_of(spec: ModelSpec, *, is_multi_label: bool = False) -> Head:
    return Head(
        family=spec.family,
        size=spec.preprocess.size,
        strides=spec.strides,
        is_multi_label=is_multi_label,
        classes=len(spec.labels),
        is_turned=spec.task == OBB,
    )


def decode_output(output: EngineOutput, head: Head, *, score_threshold: float) -> Candidates:
    """Return every box whose score is above `score_threshold`: its best class, or each class where `head` says so.

    `output`: float32, one of the layouts above, or the cells of it that can be above `score_threshold`.
    Raises `TensorMismatchError` if cells above `score_threshold` were left out of `output`.
    """
    if isinstance(output, CandidateRows):
        found = _of_candidates(output, head, score_threshold)
    else:
        found = _cells_above(output, head, score_threshold)
    return _DECODERS[head.family](found, head, score_threshold)


def has_scores(output: EngineOutput, head: Head) -> bool:
    """Return whether any score of a batch is other than 0, however low it is."""
    if isinstance(output, CandidateRows) and (len(output) or output.whole is None):
        return True  # what was found has a score, and of the rest nothing is known
    output = _numbers(output)
    match head.family:
        case HeadFamily.YOLOV8:
            return bool(output[:, head.scores].any())
        case HeadFamily.YOLOV10:
            return bool(output[:, :, 4].any())
    return bool((output[:, :, 4:5] * output[:, :, head.scores]).any())


def _numbers(output: EngineOutput) -> FloatArray:
    """Return all of an output, or what an engine has left of it."""
    if not isinstance(output, CandidateRows):
        return output
    return output.values if output.whole is None else output.whole()


def xyxy_from_cxcywh(cxcywh: FloatArray) -> FloatArray:
    """Return corners of boxes given by centre and size; both float32 (M, 4)."""
    centre, half = cxcywh[:, :2], cxcywh[:, 2:] / 2
    xyxy = np.empty_like(cxcywh)
    np.subtract(centre, half, out=xyxy[:, :2])
    np.add(centre, half, out=xyxy[:, 2:])
    return xyxy


@functools.lru_cache(maxsize=8)
def cells_of(size: ImageSize, strides: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Return the corner (A, 2) and the stride (A, 1) of each cell, in units of cells, row by row, level by level."""
    corners, scales = [], []
    for stride in strides:
        columns, rows = size.width // stride, size.height // stride
        y, x = np.divmod(np.arange(rows * columns), columns)
        corners.append(np.stack([x, y], axis=1))
        scales.append(np.full((rows * columns, 1), stride))
    return np.concatenate(corners).astype(np.float32), np.concatenate(scales).astype(np.float32)


def _cells_above(output: FloatArray, head: Head, score_threshold: float) -> CandidateRows:
    """Return the cells that can be above the threshold: by their objectness, or by the classes where there is none."""
    if head.family is HeadFamily.YOLOV8:
        # Over the planes of the classes, which lie one after the other in memory: no transposed copy is made.
        row, cell = np.nonzero(output[:, head.scores].max(axis=1) > score_threshold)
        values = output[row, :, cell]
    else:
        # A score is at most the objectness (or is it): that alone already rules most cells out.
        row, cell = np.nonzero(output[:, :, 4] > score_threshold)
        values = output[row, cell]
    return CandidateRows(row=row, cell=cell, values=values, score_threshold=score_threshold)


def _of_candidates(found: CandidateRows, head: Head, score_threshold: float) -> CandidateRows:
    """Return what `_cells_above` would have found in the whole output, and others that decoding leaves out."""
    if score_threshold < found.score_threshold:
        raise TensorMismatchError(
            f"detections above {score_threshold:g} are wanted of an engine that keeps those above "
            f"{found.score_threshold:g} only"
        )
    values = found.values
    if head.family is not HeadFamily.YOLOV8:
        is_above = values[:, 4] > score_threshold
    elif head.is_multi_label:
        is_above = values[:, head.scores].max(axis=1) > score_threshold
    else:
        return found  # decoding looks at the best class of each once more
    kept = is_above.nonzero()[0]
    return CandidateRows(
        row=found.row.take(kept),
        cell=found.cell.take(kept),
        values=values.take(kept, axis=0),
        score_threshold=score_threshold,
    )


def _decode_yolov5(found: CandidateRows, head: Head, score_threshold: float) -> Candidates:
    index, score, class_id = _with_objectness(found.values, head, score_threshold)
    return _candidates(found, index, xyxy_from_cxcywh(found.values[index, :4]), score, class_id)


def _decode_yolox(found: CandidateRows, head: Head, score_threshold: float) -> Candidates:
    index, score, class_id = _with_objectness(found.values, head, score_threshold)
    box, cell = found.values[index, :4], found.cell[index]
    corner, stride = cells_of(head.size, head.strides)
    # Source: YOLOX paper, section 2.1 (anchor-free head): centre = (offset + cell) * stride, size = exp(raw) * stride.
    centre = (box[:, :2] + corner[cell]) * stride[cell]
    size = np.exp(box[:, 2:]) * stride[cell]
    xyxy = xyxy_from_cxcywh(np.concatenate([centre, size], axis=1))
    return _candidates(found, index, xyxy, score, class_id)


def _decode_yolov8(found: CandidateRows, head: Head, score_threshold: float) -> Candidates:
    index, score, class_id = _classes(found.values[:, head.scores], head, score_threshold)
    return _candidates(found, index, xyxy_from_cxcywh(_upright(found.values, head)[index]), score, class_id)


def _decode_yolov10(found: CandidateRows, head: Head, score_threshold: float) -> Candidates:
    values = found.values
    class_id = values[:, 5].astype(np.int32)
    xyxy = xyxy_from_cxcywh(_upright(values, head)) if head.is_turned else values[:, :4]
    return Candidates(row=found.row, cell=found.cell, xyxy=xyxy, score=values[:, 4], class_id=class_id)


def _upright(values: FloatArray, head: Head) -> FloatArray:
    """Return cx cy w h of upright boxes, float32 (M, 4): of turned ones those around them."""
    if not head.is_turned:
        return values[:, :4]
    cosine, sine = np.abs(np.cos(values[:, -1])), np.abs(np.sin(values[:, -1]))
    width, height = values[:, 2], values[:, 3]
    sides = (width * cosine + height * sine, width * sine + height * cosine)
    return np.stack([values[:, 0], values[:, 1], *sides], axis=1)


def _candidates(
    found: CandidateRows, index: NDArray[np.int64], xyxy: FloatArray, score: FloatArray, class_id: NDArray[np.int32]
) -> Candidates:
    return Candidates(row=found.row.take(index), cell=found.cell.take(index), xyxy=xyxy, score=score, class_id=class_id)


def _with_objectness(values: FloatArray, head: Head, score_threshold: float) -> _Scored:
    return _classes(values[:, head.scores] * values[:, 4:5], head, score_threshold)


def _classes(scores: FloatArray, head: Head, score_threshold: float) -> _Scored:
    """Return for each candidate which line of `scores`, float32 (M, K), it comes from, its score, and its class."""
    if head.is_multi_label:
        index, class_id = np.nonzero(scores > score_threshold)
        return index, scores[index, class_id], class_id.astype(np.int32)
    best = scores.argmax(axis=1)
    score = scores[np.arange(len(scores)), best]
    kept = (score > score_threshold).nonzero()[0]
    return kept, score.take(kept), best.take(kept).astype(np.int32)


_DECODERS: dict[HeadFamily, Callable[[CandidateRows, Head, float], Candidates]] = {
    HeadFamily.YOLOV5: _decode_yolov5,
    HeadFamily.YOLOV8: _decode_yolov8,
    HeadFamily.YOLOV10: _decode_yolov10,
    HeadFamily.YOLOX: _decode_yolox,
}
