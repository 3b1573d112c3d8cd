"""Suppression inside of a model (`nms=True`): what it lets through, and what a pipeline asks in vain.

Source: ultralytics `NMSModel`: boxes with a score above `conf` go into NonMaxSuppression, at most `max_det` come out.
Its metadata has none of the three, so that they are read from the graph.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Protocol

from edge.model.graph import Graph
from edge.model.node import Node
from edge.model.tasks import ExportMetadata
from edge.types import Suppression

__all__ = ["THRESHOLDS", "Asked", "suppression_of", "thresholds_in_vain"]

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
