"""Export and task of a model by its metadata, and the outputs of other tasks beside the boxes.

Boxes alone are decoded. The file says how many rows or columns of its output the rest takes: the shape of a pose
model's keypoints, the prototypes of masks, the names of its classes. An angle is one.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edge.model.graph import Graph, TensorInfo
from edge.types import OBB, ImageSize, ModelSpec

__all__ = [
    "DETECT",
    "ExportMetadata",
    "beside_boxes",
    "boxes_only",
    "boxes_output",
    "has_decoded_boxes",
    "read_metadata",
    "task_of",
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
