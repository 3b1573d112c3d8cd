"""Reads family, input, preprocess and labels of a model from its ONNX file.

Everything else in the pipeline rests on this answer, so it is strict: a model that cannot be shown to be a detector
whose layout we decode is refused, with what was seen in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edge.errors import ModelError, StatedError
from edge.model.editor import resolve
from edge.model.families import LAYOUTS, Match, NotThisFamily, Output, match_family
from edge.model.graph import Dim, Graph, ModelFile, TensorInfo, read_model_file
from edge.model.node import QDQ_OPERATORS
from edge.model.pixels import UnclearPixels, pixels_taken
from edge.model.tasks import (
    DETECT,
    ExportMetadata,
    beside_boxes,
    boxes_only,
    boxes_output,
    has_decoded_boxes,
    read_metadata,
    suppression_of,
    task_of,
)
from edge.model.trace import Tracer
from edge.types import ColourOrder, HeadFamily, ImageSize, ModelSpec, PadPosition, Preprocess, Suppression

__all__ = ["ModelOverrides", "inspect_file", "inspect_graph", "inspect_model"]


def picture_input(graph: Graph) -> TensorInfo:
    """Return the one input. Raises NotThisFamily if there are more, or it is not float32 (B, 3, H, W)."""
    if len(graph.inputs) != 1:
        raise NotThisFamily(f"expected one input, got {len(graph.inputs)}")
    picture = graph.inputs[0]
    if picture.dtype == "float16":
        raise NotThisFamily(
            f"the input is {picture}, expected float32; export it without half: the engine chooses fp16"
        )
    if picture.dtype != "float32":
        raise NotThisFamily(f"the input is {picture}, expected float32")
    if len(picture.shape) != 4:
        raise NotThisFamily(f"the input is {picture}, expected (B, 3, H, W)")
    if picture.shape[3] == 3 and picture.shape[1] != 3:
        raise NotThisFamily(f"the input is {picture}, channels last, as TensorFlow has it; expected (B, 3, H, W)")
    if isinstance(picture.shape[1], int) and picture.shape[1] != 3:
        raise NotThisFamily(f"the input {picture} has {picture.shape[1]} channels, expected 3")
    return picture


USUAL_SIZE = ImageSize(width=640, height=640)
"""That exporters and validation of YOLO take where nothing is said; YOLOv5's `--dynamic` does not note its own."""


def picture_size(
    picture: TensorInfo, *, stated: ImageSize | None, exported: ImageSize | None
) -> tuple[ImageSize, tuple[str, ...]]:
    """Return the size of the canvas: what the graph fixes, else what is stated, else what the exporter noted, else the
    usual one; and a sentence where it is that.
    Raises `StatedError` if the graph does not take the stated size; NotThisFamily if not that of the exporter.
    """
    height, width = picture.shape[2:]
    chosen = stated or exported or USUAL_SIZE
    is_taken = _agrees(height, chosen.height) and _agrees(width, chosen.width)
    if stated is not None and not is_taken:
        hint = "remove it, or export the model for that size"
        raise StatedError("input_size", f"got {stated}, the input of the model is {picture}", hint=hint)
    if isinstance(height, int) and isinstance(width, int):
        return ImageSize(width=width, height=height), ()
    if not is_taken:
        raise NotThisFamily(f"the input {picture} does not take {chosen}")
    if stated is not None or exported is not None:
        return chosen, ()
    return chosen, (f"it takes any size and notes none: {chosen} is used; model.input_size in a pipeline says another",)


def _agrees(dim: Dim, size: int) -> bool:
    return not isinstance(dim, int) or dim == size


MAX_WORKING_BYTES = 2 << 30
"""Of one frame in float32: four times what the largest YOLO takes at 1280 x 1280, and what a small Jetson has free."""

_ELEMENT_BYTES = 4


def working_bytes(resolved: Graph) -> tuple[int, str]:
    """Return the most bytes that tensors of known shape take at once, and the tensor at which they do.

    Each is counted from the node that makes it to the last one that reads it, as float32. `resolved`: a graph whose
    shapes are worked out, nodes in order.
    """
    last = {name: position for position, node in enumerate(resolved.nodes) for name in node.inputs}
    live: dict[str, int] = {}
    most, where = 0, ""
    for position, node in enumerate(resolved.nodes):
        live.update({name: _bytes(resolved, name) for name in node.outputs if name})
        total = sum(live.values())
        if total > most:
            most, where = total, max(node.outputs, key=lambda name: live.get(name, 0))
        for name in [*node.inputs, *node.outputs]:
            if last.get(name, -1) <= position:
                live.pop(name, None)
    return most, where


def check_working_memory(resolved: Graph, *, where: str, batch: int) -> None:
    """Raise ModelError if the model takes more than `MAX_WORKING_BYTES` for each of `batch` frames."""
    total, tensor = working_bytes(resolved)
    if total > MAX_WORKING_BYTES * batch:
        raise ModelError(
            f"{where}: its tensors take {total} bytes at once for {batch} frames (at {tensor[:100]!r}, "
            f"{resolved.shape(tensor)}), at most {MAX_WORKING_BYTES} for each are allowed",
            hint="export it for a smaller input; if the model is not yours, do not trust it",
        )


def _bytes(graph: Graph, name: str) -> int:
    return _ELEMENT_BYTES * math.prod(graph.shape(name) or (0,))


_SUPPRESSING = ("NonMaxSuppression", "EfficientNMS_TRT", "BatchedNMS_TRT", "BatchedNMSDynamic_TRT")
_NOT_INSIDE = "export it without nms=True (YOLOv7: without --end2end)"
_DECODED = "export it with the decoding (YOLOv7, YOLOv5-Lite: --grid)"


def likely_kind(graph: Graph) -> str | None:
    """Return half a sentence, "it looks like ...", from the outputs alone; None when nothing comes to mind."""
    inside = next((node.op_type for node in graph.nodes if node.op_type in _SUPPRESSING), None)
    if inside is not None:
        return f"it looks like a detector that suppresses inside ({inside}): {_NOT_INSIDE}"
    ranks = [len(info.shape) for info in graph.outputs]
    if len(ranks) == 1:
        return _single(graph.outputs[0])
    if 5 in ranks or (ranks == [4] * len(ranks) and len(ranks) in (2, 3, 4, 6, 9)):
        return f"it looks like a head without its decoding (raw maps per level): {_DECODED}"
    if _has_words(graph, "box") and _has_words(graph, "score", "label", "class", "logit", "conf"):
        return "it looks like SSD, DETR or a model with NMS in several outputs (boxes and scores apart)"
    return "a detector that we decode has one output"


def _single(output: TensorInfo) -> str | None:
    match len(output.shape):
        case 2:
            return "it looks like a classification model"
        case 3 if output.shape[1] in (100, 300, 900):
            return f"it looks like DETR, RT-DETR or another head without a grid: {output.shape[1]} candidates"
        case 4:
            return "it looks like a semantic segmentation model, or one level of a raw head"
        case 5:
            return f"it looks like one level of a raw YOLOv5 or v7 head: {_DECODED}"
    return None


def _has_words(graph: Graph, *words: str) -> bool:
    return any(word in info.name.lower() for info in graph.outputs for word in words)


# Source: instances_val2017.json, "categories" sorted by category_id (1 to 90 with gaps).
COCO_LABELS: tuple[str, ...] = tuple(
    """person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign,
    parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella,
    handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard,
    surfboard, tennis racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange,
    broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop,
    mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors,
    teddy bear, hair drier, toothbrush""".replace("\n", " ")
    .replace("     ", " ")
    .split(", ")
)


_DYNAMIC = ("DynamicQuantizeLinear", "ConvInteger", "MatMulInteger")  # scales found anew in each frame, by no table


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOverrides:
    """Stated facts of the model; None: read it. A statement that the file contradicts is refused."""

    family: HeadFamily | None = None
    labels: tuple[str, ...] | None = None
    input_size: ImageSize | None = None


def inspect_model(path: Path, *, overrides: ModelOverrides | None = None) -> ModelSpec:
    """Raise `ModelError` if the file is damaged or is not a detector that we decode, `StatedError` if it contradicts
    `overrides`; MissingDependencyError if onnx is not installed.
    """
    return inspect_file(read_model_file(path), overrides=overrides)


def inspect_file(file: ModelFile, *, overrides: ModelOverrides | None = None) -> ModelSpec:
    """Raise `ModelError` as `inspect_model`."""
    return inspect_graph(file.graph, path=file.path, sha256=file.sha256, overrides=overrides)


def inspect_graph(graph: Graph, *, path: Path, sha256: str, overrides: ModelOverrides | None = None) -> ModelSpec:
    """Return what `graph` is, the inside of a file at `path` with digest `sha256`.
    Raises `ModelError` as `inspect_model`.
    """
    stated = overrides or ModelOverrides()
    _require_static(graph, path)
    metadata = read_metadata(graph.metadata)
    try:
        picture = picture_input(graph)
        size, of_size = picture_size(picture, stated=stated.input_size, exported=metadata.size)
        task = task_of(graph, metadata)
        output = _examined_output(graph, picture, path=path, size=size, metadata=metadata, task=task)
        match = _recognised(output, stated.family)
        labels, of_labels = _labels(match, stated=stated.labels, metadata=metadata)
        suppression = _suppression(output, match)
        preprocess, of_pixels = _pixels(output, match.family)
    except NotThisFamily as reason:
        raise _refusal(path, graph, metadata, str(reason)) from reason
    spec = ModelSpec(
        path=path,
        name=path.stem,
        sha256=sha256,
        family=match.family,
        input_name=picture.name,
        output_name=output.name,
        preprocess=preprocess,
        batch=picture.shape[0] if isinstance(picture.shape[0], int) else None,
        labels=labels,
        strides=match.strides,
        is_quantized=any(node.op_type in QDQ_OPERATORS for node in graph.nodes),
        task=task,
        suppression=suppression,
    )
    return replace(
        spec,
        evidence=(*_provenance(graph, metadata), *of_size, *of_labels, *match.evidence, *of_pixels, *_limits(spec)),
    )


def _examined_output(
    graph: Graph, picture: TensorInfo, *, path: Path, size: ImageSize, metadata: ExportMetadata, task: str
) -> Output:
    """Return the one output that has the boxes, its shapes worked out for a canvas of `size`."""
    if not has_decoded_boxes(task):
        raise NotThisFamily("a task whose boxes, if it has any, are not decoded")
    declared = boxes_output(graph, task)
    if declared is None:
        raise NotThisFamily(f"expected one output, got {len(graph.outputs)}")
    batch = picture.shape[0] if isinstance(picture.shape[0], int) else 1
    resolved = resolve(graph, (batch, 3, size.height, size.width))
    check_working_memory(resolved, where=str(path), batch=batch)
    shape = resolved.shape(declared.name) or tuple(d if isinstance(d, int) else -1 for d in declared.shape)
    if len(shape) != 3 or -1 in shape[1:]:
        raise NotThisFamily(f"expected an output of three dimensions, got {declared}")
    return Output(
        graph=resolved,
        tracer=Tracer(resolved),
        name=declared.name,
        shape=(batch, shape[1], shape[2]),
        size=size,
        metadata=metadata,
        beside=beside_boxes(graph, resolved, task, metadata),
    )


def _recognised(output: Output, stated: HeadFamily | None) -> Match:
    matches, reasons = [], []
    for family in LAYOUTS if stated is None else (stated,):
        try:
            matches.append(match_family(output, family, is_stated=stated is not None))
        except NotThisFamily as reason:
            reasons.append(reason)
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = " and ".join(match.family.value for match in matches)
        raise NotThisFamily(f"it could be {names}; state the family")
    if stated is not None:
        hint = "remove it: what the model is, is read from its file"
        raise StatedError("family", f"got {stated.value}, which the model is not: {reasons[0]}", hint=hint)
    close = [str(reason) for reason in reasons if reason.is_close] or [str(reason) for reason in reasons]
    raise NotThisFamily("; ".join(close))


def _labels(
    match: Match, *, stated: tuple[str, ...] | None, metadata: ExportMetadata
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return one label for each class: stated, else from the file, else COCO's for eighty, else numbered; and a
    sentence where they are taken for granted.
    """
    if stated is not None and match.classes not in (None, len(stated)):
        hint = "give one for each, or use streams[].classes to report only some"
        raise StatedError("labels", f"{len(stated)} labels, the model has {match.classes} classes", hint=hint)
    if metadata.labels is not None and match.classes not in (None, len(metadata.labels)):
        raise NotThisFamily(
            f"{match.family.value}: the output has {match.classes} classes, the file names: {len(metadata.labels)}"
        )
    known = stated or metadata.labels
    if known is not None:
        return known, ()
    if match.classes is None:
        raise NotThisFamily(
            f"{match.family.value}: the file does not tell how many classes there are; state the labels"
        )
    if (strange := metadata.strange_names) is None and match.classes == len(COCO_LABELS):
        return COCO_LABELS, ("the file does not name its classes: as there are 80, they are taken for COCO's",)
    numbered = tuple(f"class-{i}" for i in range(match.classes))
    why = "does not name its classes" if strange is None else f"names its classes in an unknown way ({strange[:40]!r})"
    return numbered, (f"the file {why}: they are numbered; model.labels in a pipeline names them",)


def _suppression(output: Output, match: Match) -> Suppression | None:
    if match.family is not HeadFamily.YOLOV10:
        return None
    return suppression_of(output.graph, output.name, output.metadata, boxes=output.shape[1])


def _limits(spec: ModelSpec) -> Iterator[str]:
    """Yield what is not to be had of the model, though somebody may expect it."""
    if (told := boxes_only(spec)) is not None:
        yield told
    if (inside := spec.suppression) is not None:
        score, iou = (
            "unknown" if value is None else f"{value:g}" for value in (inside.score_threshold, inside.iou_threshold)
        )
        yield (
            f"it suppresses inside: scores above {score}, IoU {iou}, at most {inside.max_detections} boxes; "
            "thresholds of a pipeline cannot widen that"
        )


def _preprocess(family: HeadFamily, size: ImageSize) -> Preprocess:
    if family is HeadFamily.YOLOX:
        return Preprocess(
            size=size, pad_position=PadPosition.TOP_LEFT, colour_order=ColourOrder.BGR, scale=1.0, pad_value=114
        )
    return Preprocess(size=size)


def _pixels(output: Output, family: HeadFamily) -> tuple[Preprocess, tuple[str, ...]]:
    try:
        return pixels_taken(output.graph, _preprocess(family, output.size))
    except UnclearPixels as problem:
        raise NotThisFamily(
            f"{family.value}: what it does to the picture first cannot be followed: {problem}"
        ) from problem


def _provenance(graph: Graph, metadata: ExportMetadata) -> Sequence[str]:
    sentences = [f"exported by {graph.made_by or 'an unnamed tool'}, opset {graph.opset}"]
    if metadata.description:
        sentences.append(f'the file describes itself as "{metadata.description}"')
    return sentences


def _require_static(graph: Graph, path: Path) -> None:
    kinds = [node.op_type for node in graph.nodes]
    found = [f"{kinds.count(kind)} {kind}" for kind in _DYNAMIC if kind in kinds]
    if found:
        raise ModelError(
            f"{path}: expected a float model or one with Q/DQ pairs, this one is quantized dynamically "
            f"({', '.join(found)})",
            hint="take the float model that it was made of; edge-deploy calibrate makes INT8 of that",
        )


def _refusal(path: Path, graph: Graph, metadata: ExportMetadata, reason: str) -> ModelError:
    likely = likely_kind(graph) if metadata.task in (None, DETECT) else None  # what it says needs no guess
    inputs = ", ".join(str(info) for info in graph.inputs) or "none"
    outputs = ", ".join(str(info) for info in graph.outputs)
    guess = "" if likely is None else f", {likely}"
    task = "" if metadata.task in (None, DETECT) else f' (the file says that its task is "{metadata.task}")'
    return ModelError(
        f"{path}: not a detector that can be decoded{guess}{task}: {reason}. Inputs: {inputs}. Outputs: {outputs}. "
        f"Known: {'; '.join(LAYOUTS.values())}",
        hint="export the detection model with its default options, one float32 image input and one output",
    )
