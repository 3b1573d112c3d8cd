"""Which head an output is: the shape proposes a family, the graph behind it has to prove it.

A family is accepted only when its boxes carry the arithmetic of that family and every other row is a score, or is what
the file says of its task (keypoints, mask coefficients, an angle). Whatever else could be hiding in the same shape
(those three where the file does not say so, corners, logits) is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from edge.model.graph import Graph
from edge.model.tasks import ExportMetadata
from edge.model.trace import WHOLE, OutputRows, TracedRoute, Tracer, Untraceable, rows_between
from edge.types import HeadFamily, ImageSize

__all__ = ["LAYOUTS", "Match", "NotThisFamily", "Output", "match_family"]


_STRIDES = (4, 8, 16, 32, 64, 128)


def strides_of(cells: int, size: ImageSize) -> tuple[int, ...] | None:
    """Return the neighbouring strides, finest first, whose cells add up to `cells`; None if there are none.

    Each level has four times the cells of the next one, so that no two sets of neighbours have the same sum.
    """
    for first in range(len(_STRIDES)):
        for last in range(first + 1, len(_STRIDES) + 1):
            strides = _STRIDES[first:last]
            fits = size.width % strides[-1] == 0 and size.height % strides[-1] == 0
            if fits and sum(cells_at(stride, size) for stride in strides) == cells:
                return strides
    return None


def cells_at(stride: int, size: ImageSize) -> int:
    return (size.width // stride) * (size.height // stride)


LAYOUTS: Mapping[HeadFamily, str] = {
    HeadFamily.YOLOV5: "YOLOv5, v7 (B, A, 5+K)",
    HeadFamily.YOLOV8: "YOLOv8, v9, v10, 11, 12, 26 (B, 4+K, A)",
    HeadFamily.YOLOV10: "YOLOv10, 26 end to end (B, A, 6)",
    HeadFamily.YOLOX: "YOLOX raw grid (B, A, 5+K)",
}

_ANCHORS_PER_CELL = 3
_LEAST_NOTED_STRIDE = 32  # exporters note this even for models whose coarsest level is finer
_ARITHMETIC = frozenset(("Add", "Sub", "Mul", "Div"))


class NotThisFamily(Exception):  # noqa: N818 - a finding, not a failure
    """The output is not of this family; `is_close` when its shape would have fitted, so that the reason matters."""

    def __init__(self, reason: str, *, is_close: bool = True) -> None:
        super().__init__(reason)
        self.is_close = is_close


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An output under examination: `graph` has its shapes resolved for a canvas of `size`.

    `beside` as `edge.model.tasks.beside_boxes` has it.
    """

    graph: Graph
    tracer: Tracer
    name: str
    shape: tuple[int, int, int]
    size: ImageSize
    metadata: ExportMetadata
    beside: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """An output that is of `family`; `classes` is None when neither shape nor graph tells how many there are."""

    family: HeadFamily
    strides: tuple[int, ...]
    classes: int | None
    evidence: tuple[str, ...]


def match_family(output: Output, family: HeadFamily, *, is_stated: bool) -> Match:
    """`is_stated`: somebody says so; then a graph that cannot be followed does not speak against it.
    Raises NotThisFamily if shape or graph speak against it, or the graph cannot be followed and none is stated.
    """
    propose, prove = _FAMILIES[family]
    match = propose(output)
    try:
        proof = prove(output, match)
    except Untraceable as problem:
        is_believed = is_stated or (family is HeadFamily.YOLOV10 and output.metadata.is_end_to_end)
        if not is_believed:
            raise NotThisFamily(f"{family.value}: the shape fits, but {problem}") from problem
        proof = (f"the graph could not be followed ({problem}); the family is taken as it is stated",)
    return Match(family=family, strides=match.strides, classes=match.classes, evidence=(*match.evidence, *proof))


def _propose_yolov5(output: Output) -> Match:
    _, candidates, rows = output.shape
    strides = strides_of(candidates // _ANCHORS_PER_CELL, output.size) if candidates % _ANCHORS_PER_CELL == 0 else None
    if strides is None or rows < 6:
        raise NotThisFamily(f"yolov5: {candidates} rows are not 3 anchors for each cell of any strides", is_close=False)
    return _match(HeadFamily.YOLOV5, output, strides, _scores(output, rows - 5), f"{candidates} = 3 anchors x cells")


def _propose_yolov8(output: Output) -> Match:
    _, rows, cells = output.shape
    strides = strides_of(cells, output.size)
    if strides is None or rows < 5:
        raise NotThisFamily(f"yolov8: {cells} columns are not the cells of any strides", is_close=False)
    return _match(HeadFamily.YOLOV8, output, strides, _scores(output, rows - 4), f"{cells} cells")


def _propose_yolox(output: Output) -> Match:
    _, cells, rows = output.shape
    strides = strides_of(cells, output.size)
    if strides is None or rows < 6:
        raise NotThisFamily(f"yolox: {cells} rows are not the cells of any strides", is_close=False)
    return _match(HeadFamily.YOLOX, output, strides, rows - 5, f"{cells} cells")


def _propose_yolov10(output: Output) -> Match:
    _, candidates, columns = output.shape
    expected = max(7, columns) if output.beside is None else 6 + output.beside
    if columns != expected:
        raise NotThisFamily(f"yolov10: the last dimension is {columns}, not {expected}", is_close=False)
    labels = output.metadata.labels
    classes = len(labels) if labels is not None else _divisor_of_class_ids(output)
    evidence = (f'output "{output.name}" holds {candidates} boxes of {columns} numbers',)
    return Match(family=HeadFamily.YOLOV10, strides=(), classes=classes, evidence=evidence)


def _scores(output: Output, rows: int) -> int:
    """Return how many of `rows`, those behind the box, are scores; the file says how many are not."""
    if output.beside is not None and output.beside < rows:
        return rows - output.beside
    labels = output.metadata.labels
    if output.beside is not None or labels is None or len(labels) >= rows:
        raise NotThisFamily(f"the file does not say how many of the {rows} rows behind the boxes are scores")
    return len(labels)


def _match(family: HeadFamily, output: Output, strides: tuple[int, ...], classes: int, count: str) -> Match:
    largest = output.metadata.largest_stride
    if largest not in (None, strides[-1], _LEAST_NOTED_STRIDE):
        raise NotThisFamily(
            f"{family.value}: the cells are of strides {strides}, the file says the largest is {largest}"
        )
    listed = ", ".join(str(stride) for stride in strides)
    evidence = (
        f'output "{output.name}" {output.shape}: {count} of strides {listed} at {output.size}, {classes} classes',
    )
    return Match(family=family, strides=strides, classes=classes, evidence=evidence)


def _prove_yolov5(output: Output, match: Match) -> tuple[str, ...]:
    rows = output.tracer.rows(output.name, 2)
    _refuse_other_grid_heads(rows, "yolov5")
    centre, extent = _routes(rows_between(rows, 0, 2)), _routes(rows_between(rows, 2, 4))
    grid = ({"Sigmoid", "Mul", "Add"}, {"Sigmoid", "Mul", "Sub"})
    if not all(any(parts <= set(route.operators) for parts in grid) for route in centre):
        raise NotThisFamily(
            "yolov5: the centres are not (sigmoid x 2 + grid) x stride; the boxes are raw or of another kind"
        )
    if not all({"Sigmoid", "Mul"} <= set(route.operators) and route.operators[-1] == "Sigmoid" for route in extent):
        raise NotThisFamily("yolov5: widths and heights are not (sigmoid x 2)^2 x anchor")
    _require_scores(rows_between(rows, 4, 5 + (match.classes or 0)), "yolov5")
    _require_end_of_scores(rows, 5 + (match.classes or 0), "yolov5")
    return (
        "boxes are sigmoids with grid and anchors applied in the graph, scores are sigmoids of the same convolutions",
    )


def _prove_yolov8(output: Output, match: Match) -> tuple[str, ...]:
    rows = output.tracer.rows(output.name, 1)
    _require_scores(rows_between(rows, 4, 4 + (match.classes or 0)), "yolov8")
    _require_end_of_scores(rows, 4 + (match.classes or 0), "yolov8")
    _require_box_arithmetic(rows_between(rows, 0, 4), "yolov8")
    if _are_corners(rows):
        raise NotThisFamily("yolov8: the boxes are corners (x1 y1 x2 y2), not centre and size; export without xyxy")
    return ("four rows of box arithmetic, then only sigmoids of one convolution per level",)


def _prove_yolox(output: Output, match: Match) -> tuple[str, ...]:
    rows = output.tracer.rows(output.name, 2)
    _refuse_other_grid_heads(rows, "yolox")
    boxes = _routes(rows_between(rows, 0, 4))
    if any(route.operators or route.end != "Conv" for route in boxes):
        raise NotThisFamily("yolox: arithmetic lies between the box convolutions and the output, so they are not raw")
    _require_scores(rows_between(rows, 4, 5), "yolox")
    _require_scores(rows_between(rows, 5, output.shape[2]), "yolox")
    order = [part.count for part in output.tracer.rows(output.name, 1)]
    expected = [cells_at(stride, output.size) for stride in match.strides]
    if order != expected:
        raise NotThisFamily(f"yolox: levels of {order} cells follow each other, expected {expected}")
    return (
        "boxes come from their convolutions unchanged, objectness and scores are sigmoids: decoding is left to us",
        "BGR pixels of 0 to 255, image in the top left corner, as in YOLOX after its legacy 0.1.0",
    )


def _prove_yolov10(output: Output, match: Match) -> tuple[str, ...]:
    rows = output.tracer.rows(output.name, 2)
    boxes, score, class_id = (_routes(rows_between(rows, a, b)) for a, b in ((0, 4), (4, 5), (5, 6)))
    if any(_is_sigmoid(route) for route in boxes):
        raise NotThisFamily("yolov10: the boxes are sigmoids, as DETR predicts them, not distances to cells")
    is_chosen = all(route.end == "TopK:0" for route in score) and all(route.end == "TopK:1" for route in class_id)
    if not is_chosen and output.metadata.is_end_to_end:
        return ("the file says that it is end to end",)
    if not is_chosen:
        raise NotThisFamily("yolov10: the last two columns are not the score and the class that a TopK has chosen")
    _require_box_arithmetic(rows_between(rows, 0, 4), "yolov10")
    return ("score and class are values and indices of a TopK over the scores, boxes are gathered by it",)


def _refuse_other_grid_heads(rows: Iterable[OutputRows], family: str) -> None:
    """Name the two heads that share the shape (B, A, 5+K) and are not ours."""
    parts = tuple(rows)
    boxes, objectness = _routes(rows_between(parts, 0, 4)), _routes(rows_between(parts, 4, 5))
    if all(route.end == "constant" for route in objectness):
        raise NotThisFamily(f"{family}: the objectness is a constant, as in YOLOv6, which is not supported")
    if any(route.end == "ScatterND" for route in boxes):
        raise NotThisFamily(
            f"{family}: the graph writes its boxes in place (ScatterND) where that cannot be followed, as old YOLOv5 "
            "releases with --dynamic and YOLOX with decode_in_inference do; export it without these"
        )
    if any("Exp" in route.operators for route in boxes):
        raise NotThisFamily(
            f"{family}: the graph decodes the boxes with an exponential, as YOLOX does with decode_in_inference; "
            "export it without --decode_in_inference"
        )


def _require_scores(scores: tuple[OutputRows, ...], family: str) -> None:
    """Demand that rows are the sigmoids of one convolution per level, and nothing else."""
    routes = _routes(scores)
    stray = next((route for route in routes if route.operators != ("Sigmoid",) or route.end != "Conv"), None)
    if stray is not None:
        way = " of ".join((*stray.operators, stray.end))
        raise NotThisFamily(
            f"{family}: not every row after the boxes is a score (sigmoid of a convolution), one is {way}: keypoints, "
            "masks, an angle, or another detector"
        )
    if len(scores) != 1:
        counts = " + ".join(str(part.count) for part in scores)
        raise NotThisFamily(f"{family}: the {counts} rows after the boxes come from different convolutions")


def _require_end_of_scores(rows: tuple[OutputRows, ...], end: int, family: str) -> None:
    """Demand that what follows the scores is of other convolutions: the file may be wrong about its classes."""
    ends = itertools.accumulate(part.count for part in rows)
    if end not in ends:
        raise NotThisFamily(f"{family}: more rows than the file says ({end} with the boxes) are scores")


def _require_box_arithmetic(boxes: tuple[OutputRows, ...], family: str) -> None:
    routes = _routes(boxes)
    if any(_is_sigmoid(route) for route in routes):
        raise NotThisFamily(f"{family}: the boxes are sigmoids, not distances to cells")
    has_stride = all("Mul" in route.operators for route in routes)
    has_anchor = all(len(set(route.operators) & _ARITHMETIC) > 1 for route in routes)
    if not (has_stride and has_anchor) or any(route.end in ("constant", "input") for route in routes):
        raise NotThisFamily(f"{family}: the boxes are not decoded in the graph (distances to cells, times stride)")


def _is_sigmoid(route: TracedRoute) -> bool:
    """Return whether a sigmoid is on the way; that of an angle, by which a box is turned, is none of the box."""
    return "Sigmoid" in route.operators and not {"Cos", "Sin"} & set(route.operators)


def _divisor_of_class_ids(output: Output) -> int | None:
    """Return K of `index % K`, by which a flat index over boxes and classes becomes a class."""
    nearest = next((node for node in output.graph.ancestors(output.name) if node.op_type == "Mod"), None)
    divisor = None if nearest is None else output.graph.constant(nearest.inputs[1])
    return None if divisor is None or divisor.size != 1 else int(divisor.reshape(-1)[0])


def _routes(rows: Iterable[OutputRows]) -> frozenset[TracedRoute]:
    return frozenset(route for part in rows for route in part.routes)


def _are_corners(rows: tuple[OutputRows, ...]) -> bool:
    """Tell x1 y1 x2 y2 from centre and size: a corner depends on two of the four distances, a centre on all."""
    first, second = (_sources(rows_between(rows, start, start + 2)) for start in (0, 2))
    is_known = all(row != WHOLE for _, row in first | second)
    return is_known and not first & second


def _sources(rows: Iterable[OutputRows]) -> set[tuple[str, int]]:
    routes = ((route, i) for part in rows for route in part.routes for i in range(part.count))
    return {(route.source, route.first if route.first == WHOLE else route.first + i) for route, i in routes}


_Propose = Callable[[Output], Match]
_Prove = Callable[[Output, Match], tuple[str, ...]]
_FAMILIES: Mapping[HeadFamily, tuple[_Propose, _Prove]] = {
    HeadFamily.YOLOV5: (_propose_yolov5, _prove_yolov5),
    HeadFamily.YOLOV8: (_propose_yolov8, _prove_yolov8),
    HeadFamily.YOLOV10: (_propose_yolov10, _prove_yolov10),
    HeadFamily.YOLOX: (_propose_yolox, _prove_yolox),
}
