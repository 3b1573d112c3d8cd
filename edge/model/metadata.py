"""What an exporter wrote into the file as text: Ultralytics' keys, read as literals and never executed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edge.types import ImageSize

__all__ = ["ExportMetadata", "read_metadata"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportMetadata:
    """Texts of the file that mean something to us; what is absent or unreadable is None.

    Attributes:
        is_end_to_end: the file says that it needs no NMS, or has it inside.
    """

    description: str = ""
    task: str | None = None
    labels: tuple[str, ...] | None = None
    largest_stride: int | None = None
    size: ImageSize | None = None
    is_end_to_end: bool = False


def read_metadata(entries: Mapping[str, str]) -> ExportMetadata:
    """Return what `entries`, the key-value texts of the file, say.

    Source: ultralytics `Exporter.__call__` and YOLOv5 `export_onnx`: `names` and `args` are Python literals.
    """
    arguments = _literal(entries.get("args"))
    description = entries.get("description", "")
    has_nms = isinstance(arguments, dict) and arguments.get("nms") is True
    return ExportMetadata(
        description=description,
        task=entries.get("task") or None,
        labels=_labels(_literal(entries.get("names"))),
        largest_stride=_stride(_literal(entries.get("stride"))),
        size=_size(_literal(entries.get("imgsz"))),
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


def _labels(value: Any) -> tuple[str, ...] | None:
    """Return labels from `{0: "person", ...}` or `["person", ...]`; None unless they are numbered without gaps."""
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict) or not value or set(value) != set(range(len(value))):
        return None
    return tuple(str(value[i]) for i in range(len(value)))


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
