"""The operator set of a file: another version of it, and the element types that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edge.errors import ModelError
from edge.model.binding import onnx_module
from edge.model.graph import Graph, graph_from_bytes

if TYPE_CHECKING:
    from edge.model.binding import ModelProto

__all__ = ["element_types", "with_opset"]


def with_opset(graph: Graph, version: int, where: str) -> Graph:
    """Return `graph` in the operator set `version`, or as it is when its own is as new.

    Raises:
        ModelError: if it cannot be converted.
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
