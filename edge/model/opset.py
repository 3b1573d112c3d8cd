"""The operator set of a file: another version of it, and the element types that follow from it.

The float types of a model, and the one of which a calibration table can be made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edge.errors import ModelError
from edge.model.binding import onnx_module
from edge.model.graph import Graph, graph_from_bytes
from edge.model.node import INTEGER_OPERATORS, QDQ_OPERATORS, WEIGHTED

if TYPE_CHECKING:
    from edge.model.binding import ModelProto

__all__ = ["element_types", "other_floats", "require_float32", "with_opset"]


def with_opset(graph: Graph, version: int, where: str) -> Graph:
    """Return `graph` in the operator set `version`, or as it is when its own is as new.
    Raises `ModelError` if it cannot be converted.
    """
    if graph.opset >= version:
        return graph
    onnx = onnx_module()
    try:
        converted: ModelProto = onnx.version_converter.convert_version(graph.proto, version)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"{where}: opset {graph.opset} cannot be converted to {version}: {reason}",
            hint=f"export it with opset {version} or newer",
        ) from error
    del converted.metadata_props[:]
    converted.metadata_props.extend(graph.proto.metadata_props)
    converted.producer_name, converted.producer_version = graph.proto.producer_name, graph.proto.producer_version
    return graph_from_bytes(converted.SerializeToString(), where)


def element_types(graph: Graph) -> Mapping[str, str]:
    """Return the element type of what is fed and of what nodes make, as far as it can be inferred."""
    onnx = onnx_module()
    known = onnx.shape_inference.infer_shapes(graph.proto).graph
    values = (*known.value_info, *known.output, *known.input)
    numbers = {value.name: value.type.tensor_type.elem_type for value in values}
    return {name: str(onnx.helper.tensor_dtype_to_np_dtype(number)) for name, number in numbers.items() if number}


def require_float32(graph: Graph, where: str) -> None:
    """Refuse a model that no calibration table can be of.
    Raises `ModelError` if it carries Q/DQ pairs, computes in integers, or in a float of another width.
    """
    kinds = {node.op_type for node in graph.nodes}
    if found := sorted(kinds.intersection((*QDQ_OPERATORS, *INTEGER_OPERATORS))):
        raise ModelError(
            f"{where}: expected a float model, it is quantized already ({', '.join(found)})",
            hint="calibrate the float model that it was made of; "
            "edge-deploy table import makes a table of one with Q/DQ pairs",
        )
    if found := other_floats(graph):
        raise ModelError(
            f"{where}: expected a float32 model, this one computes in {', '.join(found)}",
            hint="calibrate the float32 model, the engine chooses fp16 by itself; "
            "export it without half=True (in newer Ultralytics: quantize=16)",
        )


def other_floats(graph: Graph) -> list[str]:
    """Return the element types, other than float32, of what convolutions and matrix products make."""
    types = element_types(graph)
    made = {types.get(node.outputs[0], "float32") for node in graph.nodes if node.op_type in WEIGHTED}
    return sorted(made - {"float32"})
