"""What an ONNX file is, read from the file itself: family of its head, input, preprocess, labels.

Everything else in the pipeline rests on this answer, so it is strict: a model that cannot be shown to be a detector
whose layout we decode is refused, with what was seen in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.errors import ModelError
from edge.model.coco import COCO_LABELS
from edge.model.editor import resolve
from edge.model.families import LAYOUTS, Match, NotThisFamily, Output, match_family
from edge.model.file import ModelFile, read_model_file
from edge.model.graph import Graph, TensorInfo
from edge.model.memory import check_working_memory
from edge.model.metadata import ExportMetadata, read_metadata
from edge.model.other_kinds import likely_kind
from edge.model.picture import picture_input, picture_size
from edge.model.trace import Tracer
from edge.types import ColourOrder, HeadFamily, ImageSize, ModelSpec, PadPosition, Preprocess

__all__ = ["ModelOverrides", "inspect_file", "inspect_graph", "inspect_model"]

_QUANTIZERS = frozenset(("QuantizeLinear", "DequantizeLinear"))
_DYNAMIC = ("DynamicQuantizeLinear", "ConvInteger", "MatMulInteger")  # scales found anew in each frame, by no table
_DETECTION = "detect"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOverrides:
    """What somebody states about the model; None: read it. A statement that the file contradicts is refused."""

    family: HeadFamily | None = None
    labels: tuple[str, ...] | None = None
    input_size: ImageSize | None = None


def inspect_model(path: Path, *, overrides: ModelOverrides | None = None) -> ModelSpec:
    """Return what the ONNX file at `path` is.

    Raises:
        ModelError: if the file is damaged, is not a detector that we decode, or contradicts `overrides`.
        MissingDependencyError: if onnx is not installed.
    """
    return inspect_file(read_model_file(path), overrides=overrides)


def inspect_file(file: ModelFile, *, overrides: ModelOverrides | None = None) -> ModelSpec:
    """Return what a file that was read is.

    Raises:
        ModelError: as `inspect_model`.
    """
    return inspect_graph(file.graph, path=file.path, sha256=file.sha256, overrides=overrides)


def inspect_graph(graph: Graph, *, path: Path, sha256: str, overrides: ModelOverrides | None = None) -> ModelSpec:
    """Return what `graph` is, the inside of a file at `path` with digest `sha256`.

    Raises:
        ModelError: if it is not a detector that we decode, or contradicts `overrides`.
    """
    stated = overrides or ModelOverrides()
    _require_static(graph, path)
    metadata = read_metadata(graph.metadata)
    try:
        picture = picture_input(graph)
        size = picture_size(picture, stated=stated.input_size, exported=metadata.size)
        output = _examined_output(graph, picture, path=path, size=size, metadata=metadata)
        match = _recognised(output, stated.family)
        labels = _labels(match, stated=stated.labels, exported=metadata.labels)
    except NotThisFamily as reason:
        raise _refusal(path, graph, str(reason)) from reason
    return ModelSpec(
        path=path,
        name=path.stem,
        sha256=sha256,
        family=match.family,
        input_name=picture.name,
        output_name=output.name,
        preprocess=_preprocess(match.family, size),
        batch=picture.shape[0] if isinstance(picture.shape[0], int) else None,
        labels=labels,
        strides=match.strides,
        is_quantized=any(node.op_type in _QUANTIZERS for node in graph.nodes),
        evidence=(*_provenance(graph, metadata), *match.evidence),
    )


def _examined_output(
    graph: Graph, picture: TensorInfo, *, path: Path, size: ImageSize, metadata: ExportMetadata
) -> Output:
    """Return the one output, its shapes worked out for a canvas of `size`."""
    if metadata.task not in (None, _DETECTION):
        raise NotThisFamily(f'the file says that its task is "{metadata.task}", expected "{_DETECTION}"')
    if len(graph.outputs) != 1:
        raise NotThisFamily(f"expected one output, got {len(graph.outputs)}")
    batch = picture.shape[0] if isinstance(picture.shape[0], int) else 1
    resolved = resolve(graph, (batch, 3, size.height, size.width))
    check_working_memory(resolved, where=str(path), batch=batch)
    declared = graph.outputs[0]
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
    )


def _recognised(output: Output, stated: HeadFamily | None) -> Match:
    """Return the one family that the output is of."""
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
    close = [str(reason) for reason in reasons if reason.is_close] or [str(reason) for reason in reasons]
    raise NotThisFamily("; ".join(close))


def _labels(match: Match, *, stated: tuple[str, ...] | None, exported: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return one label for each class: stated, else from the file, else COCO's for eighty, else numbered."""
    for origin, labels in (("stated", stated), ("the file names", exported)):
        if labels is not None and match.classes not in (None, len(labels)):
            raise NotThisFamily(
                f"{match.family.value}: the output has {match.classes} classes, {origin}: {len(labels)}"
            )
    known = stated or exported
    if known is not None:
        return known
    if match.classes is None:
        raise NotThisFamily(
            f"{match.family.value}: the file does not tell how many classes there are; state the labels"
        )
    return COCO_LABELS if match.classes == len(COCO_LABELS) else tuple(f"class-{i}" for i in range(match.classes))


def _preprocess(family: HeadFamily, size: ImageSize) -> Preprocess:
    if family is HeadFamily.YOLOX:
        return Preprocess(
            size=size, pad_position=PadPosition.TOP_LEFT, colour_order=ColourOrder.BGR, scale=1.0, pad_value=114
        )
    return Preprocess(size=size)


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


def _refusal(path: Path, graph: Graph, reason: str) -> ModelError:
    likely = likely_kind(graph)
    inputs = ", ".join(str(info) for info in graph.inputs) or "none"
    outputs = ", ".join(str(info) for info in graph.outputs)
    guess = "" if likely is None else f", {likely}"
    return ModelError(
        f"{path}: not a detector that can be decoded{guess}: {reason}. Inputs: {inputs}. Outputs: {outputs}. "
        f"Known: {'; '.join(LAYOUTS.values())}",
        hint="export the detection model with its default options, one float32 image input and one output",
    )
