"""Export and task of a model by its metadata, outputs of other tasks beside the boxes, and suppression inside.

Boxes alone are decoded. The file says how many rows or columns of its output the rest takes: the shape of a pose
model's keypoints, the prototypes of masks, the names of its classes. An angle is one.

Suppression (`nms=True`; source: ultralytics `NMSModel`): boxes with a score above `conf` go into NonMaxSuppression, at
most `max_det` come out. The metadata has none of its thresholds, so that they are read from the graph.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from edge.model.graph import Graph, TensorInfo
from edge.model.node import Node
from edge.types import OBB, ImageSize, ModelSpec, Suppression

__all__ = [
    "Asked",
    "DETECT",
    "ExportMetadata",
    "THRESHOLDS",
    "beside_boxes",
    "boxes_only",
    "boxes_output",
    "has_decoded_boxes",
    "read_metadata",
    "suppression_of",
    "task_of",
    "thresholds_in_vain",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportMetadata:
    """Texts of the file that mean something to us; what is absent or unreadable is None.

    `strange_names`: the text that names the classes, where it is not understood.
    """

    description: str = ""
    task: str | None = None
    labels: tuple[str, ...] | None = None
    strange_names: str | None = None
    largest_stride: int | None = None
    size: ImageSize | None = None
    keypoint_rows: int | None = None  # numbers of the keypoints of one object, of a pose model
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the export, by their names
    is_end_to_end: bool = False  # the file says that it needs no NMS, or has it inside

    @property
    def has_nms(self) -> bool:
        """Whether the file says that it suppresses inside."""
        return self.arguments.get("nms") is True


def read_metadata(entries: Mapping[str, str]) -> ExportMetadata:
    """Return what `entries`, the key-value texts of the file, say.

    Source: ultralytics `Exporter.__call__` and YOLOv5 `export_onnx`: `names` and `args` are Python literals.
    """
    arguments, names = _literal(entries.get("args")), entries.get("names", "")
    labels = _labels(_literal(names) or _json(names))
    arguments = arguments if isinstance(arguments, dict) else {}
    description = entries.get("description", "")
    has_nms = arguments.get("nms") is True
    return ExportMetadata(
        description=description,
        task=entries.get("task") or None,
        labels=labels,
        strange_names=names if names and labels is None else None,
        largest_stride=_stride(_literal(entries.get("stride"))),
        size=_size(_literal(entries.get("imgsz"))),
        keypoint_rows=_keypoint_rows(_literal(entries.get("kpt_shape"))),
        arguments=arguments,
        is_end_to_end=has_nms or _literal(entries.get("end2end")) is True or _is_nms_free(description, entries),
    )


def _is_nms_free(description: str, entries: Mapping[str, str]) -> bool:
    if "end2end" in entries:  # newer exporters say it, and YOLO26 can be exported without
        return False
    return "yolov10" in description.lower().replace(" ", "")


def _literal(text: str | None) -> Any:
    try:
        return None if text is None else ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _labels(value: Any) -> tuple[str, ...] | None:
    """Return labels from `{0: "person", ...}`, where numbers may be texts as in JSON, or from `["person", ...]`; None
    unless they are numbered from 0 without gaps.
    """
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return None
    named = {str(number): str(name) for number, name in value.items()}
    numbers = [str(number) for number in range(len(value))]
    return tuple(named[number] for number in numbers) if named and set(named) == set(numbers) else None


def _stride(value: Any) -> int | None:
    if isinstance(value, list | tuple) and value:
        value = max(value)
    return int(value) if isinstance(value, int | float) and value >= 1 else None


def _size(value: Any) -> ImageSize | None:
    sides = [value, value] if isinstance(value, int) else value
    if not isinstance(sides, list | tuple) or len(sides) != 2:
        return None
    if not all(isinstance(side, int) and side >= 1 for side in sides):
        return None
    height, width = sides
    return ImageSize(width=width, height=height)


def _keypoint_rows(value: Any) -> int | None:
    """Return N x D of `[N, D]`: D numbers for each of N keypoints."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None
    count, each = value
    return count * each if all(type(one) is int and one >= 1 for one in value) else None


DETECT, POSE, SEGMENT = "detect", "pose", "segment"
_BESIDE: Mapping[str, str] = {
    POSE: "its keypoints are dropped",
    SEGMENT: "its masks are dropped",
    OBB: "each is the upright box around a turned one, and its angle is dropped",
}


def task_of(graph: Graph, metadata: ExportMetadata) -> str:
    """Return the task that the file names; where it names none, that of its outputs."""
    return metadata.task or (DETECT if _prototypes(graph) is None else SEGMENT)


def has_decoded_boxes(task: str) -> bool:
    return task == DETECT or task in _BESIDE


def boxes_output(graph: Graph, task: str) -> TensorInfo | None:
    """Return the output that has the boxes; None where there are more outputs than can be explained.

    Those are the prototypes of masks, and the raw maps (B, 3, H, W, 5+K) that YOLOv5 before 6.1, YOLOv5-Lite and YOLOv7
    give beside what they make of them.
    """
    prototypes = _prototypes(graph) if task == SEGMENT else None
    others = [info for info in graph.outputs if info is not prototypes]
    found = [info for info in others if len(info.shape) != 5] if len(others) > 1 else others
    return found[0] if len(found) == 1 else None


def beside_boxes(graph: Graph, resolved: Graph, task: str, metadata: ExportMetadata) -> int | None:
    """Return how many numbers of a box are neither corners nor scores; None: as many as the classes leave.

    `graph`: of the file, whose outputs have their declared shapes. `resolved`: the same with its shapes worked out.
    """
    if task == POSE:
        return metadata.keypoint_rows
    if task == SEGMENT:
        prototypes = _prototypes(graph)
        shape = None if prototypes is None else resolved.shape(prototypes.name)
        return None if shape is None else shape[1]
    return 1 if task == OBB else 0


def boxes_only(spec: ModelSpec) -> str | None:
    """Return what is made of a model whose task is more than boxes, half a sentence; None of a plain detector."""
    return f"{spec.task}: boxes alone are decoded, {_BESIDE[spec.task]}" if spec.task in _BESIDE else None


def _prototypes(graph: Graph) -> TensorInfo | None:
    """Return the second output, maps of which masks are made, beside one of boxes."""
    if sorted(len(info.shape) for info in graph.outputs) != [3, 4]:
        return None
    return next(info for info in graph.outputs if len(info.shape) == 4)


THRESHOLDS = ("score_threshold", "iou_threshold", "max_detections")

_IOU_INPUT, _SCORE_INPUT = 3, 4


def suppression_of(graph: Graph, output: str, metadata: ExportMetadata, *, boxes: int) -> Suppression | None:
    """Return what `graph` lets through, None where it does not suppress.

    `output`: that has `boxes` for each image. `metadata`: of the file; what it says of a threshold goes before the
    graph. `boxes`: at most for each image.
    """
    nodes = list(graph.ancestors(output))
    nms = next((node for node in nodes if node.op_type == "NonMaxSuppression"), None)
    if nms is None and not metadata.has_nms:
        return None
    said = metadata.arguments
    return Suppression(
        score_threshold=_share(said.get("conf")) or max(_score_thresholds(graph, nodes, nms), default=None),
        iou_threshold=_share(said.get("iou")) or (None if nms is None else _constant(graph, nms.input(_IOU_INPUT))),
        max_detections=boxes,
    )


class Asked(Protocol):
    """A pipeline's, or a measurement's, demands on a model."""

    @property
    def score_threshold(self) -> float:
        """Below it nothing is wanted."""

    @property
    def iou_threshold(self) -> float:
        """Of two boxes of a class that overlap by more, one is wanted."""

    @property
    def max_detections(self) -> int:
        """Of a frame, at most."""


def thresholds_in_vain(
    inside: Suppression | None, asked: Asked, *, stated: Container[str] = THRESHOLDS
) -> tuple[str, ...]:
    """Return half a sentence for each threshold that has no effect, since the model has another one inside.

    `stated`: those of `THRESHOLDS` that a person has asked for; of a default nothing is said.
    """
    return tuple(told for name, told in _in_vain(inside, asked) if name in stated) if inside is not None else ()


def _in_vain(inside: Suppression, asked: Asked) -> Iterator[tuple[str, str]]:
    score, iou, most = asked.score_threshold, asked.iou_threshold, asked.max_detections
    if inside.score_threshold is None:
        yield "score_threshold", f"the file does not tell above which score: {score:g} may have no effect"
    elif score < inside.score_threshold:
        yield (
            "score_threshold",
            f"nothing below a score of {inside.score_threshold:g} comes out, {score:g} is asked for",
        )
    if inside.iou_threshold is None:
        yield "iou_threshold", f"an IoU of {iou:g} has no effect, and the file does not tell its own"
    elif inside.iou_threshold != iou:
        yield "iou_threshold", f"it suppresses above an IoU of {inside.iou_threshold:g}, {iou:g} has no effect"
    if most > inside.max_detections:
        yield "max_detections", f"at most {inside.max_detections} boxes of a frame come out, {most} are asked for"


def _score_thresholds(graph: Graph, nodes: list[Node], nms: Node | None) -> Iterator[float]:
    """Yield the limit of the nearest comparison, and that of the suppression itself, where they are stored."""
    limits = (_limit(graph, node) for node in nodes if node.op_type == "Greater")
    compared = next((limit for limit in limits if limit is not None), None)
    inside = None if nms is None else _constant(graph, nms.input(_SCORE_INPUT))
    yield from (one for one in (compared, inside) if one is not None)


def _limit(graph: Graph, node: Node) -> float | None:
    return _constant(graph, node.inputs[1]) if graph.is_varying(node.inputs[0]) else None


def _constant(graph: Graph, name: str) -> float | None:
    value = graph.constant(name) if name else None
    return None if value is None or value.size != 1 else _share(float(value.reshape(-1)[0]))


def _share(value: Any) -> float | None:
    """Return a threshold as a decimal number of a person's, not as float32 has it; None of what can be none."""
    is_share = isinstance(value, int | float) and 0 < value <= 1
    return float(f"{value:.4g}") if is_share else None
