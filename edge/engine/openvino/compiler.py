"""From an ONNX file to a compiled model that takes uint8 canvases: preprocess and layout become part of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge.engine.openvino.binding import core, import_openvino
from edge.engine.openvino.int8 import is_int8_in_float
from edge.errors import EngineError
from edge.model.graph import graph_from_bytes, load_graph
from edge.model.qdq import with_float_arithmetic, with_uint8_activations
from edge.types import ColourOrder, ModelSpec

__all__ = ["Compiler", "largest_name"]


class Compiler:
    """Compiles one model for different numbers of rows.

    Args:
        spec: what the model is.
        config: OpenVINO's properties.
        content: the model, where it is not what the file of `spec` holds.
        inner: tensors inside the graph to be given out too, not its input.
        largest_of: tensors inside the graph whose largest |x| of all rows is given out, once for each row.
    """

    def __init__(
        self,
        spec: ModelSpec,
        config: Mapping[str, str],
        *,
        content: bytes | None = None,
        inner: Sequence[str] = (),
        largest_of: Sequence[str] = (),
    ) -> None:
        self._ov = import_openvino()
        self._spec = spec
        self._config = dict(config)
        self._content = content
        self._inner = tuple(inner)
        self._largest_of = tuple(largest_of)

    def compile(self, rows: int) -> Any:
        """Return the compiled model for `rows` images.

        Raises:
            EngineError: if OpenVINO cannot read or compile it.
        """
        try:
            model = self._with_preprocess(self._with_inner(self._read(rows), rows))
            return core().compile_model(model, "CPU", self._config)
        except RuntimeError as error:
            raise EngineError(f"{self._spec.path.name}: OpenVINO cannot compile it: {_first_line(error)}") from error

    def _read(self, rows: int) -> Any:
        spec = self._spec
        model = core().read_model(self._source())
        size = spec.preprocess.size
        model.reshape({spec.input_name: [rows, 3, size.height, size.width]})
        return model

    def _source(self) -> bytes | str:
        """OpenVINO computes wrong results behind a Concat of int8 activations; of the same as uint8, right ones.

        Where it does not compute INT8, or not exactly, its levels are computed in float (docs/adr/0009).
        """
        path, content = self._spec.path, self._content
        if not self._spec.is_quantized:
            return str(path) if content is None else content
        graph = load_graph(path) if content is None else graph_from_bytes(content, str(path))
        return with_float_arithmetic(graph) if is_int8_in_float() else with_uint8_activations(graph)

    def _with_preprocess(self, model: Any) -> Any:
        ov, preprocess = self._ov, self._spec.preprocess
        prepost = ov.preprocess.PrePostProcessor(model)
        tensor = prepost.input(self._spec.input_name)
        tensor.tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC"))
        tensor.model().set_layout(ov.Layout("NCHW"))
        steps = tensor.preprocess().convert_element_type(ov.Type.f32)
        if preprocess.colour_order is ColourOrder.BGR:
            steps.reverse_channels()
        if any(preprocess.mean):
            steps.mean([mean / preprocess.scale for mean in preprocess.mean])
        if (preprocess.scale, *preprocess.std) != (1.0, 1.0, 1.0, 1.0):
            steps.scale([std / preprocess.scale for std in preprocess.std])
        prepost.output(self._spec.output_name).tensor().set_element_type(ov.Type.f32)
        return prepost.build()

    def _with_inner(self, model: Any, rows: int) -> Any:
        opset = self._ov.opset13
        port_of = {name: port for op in model.get_ops() for port in op.outputs() for name in port.get_names()}
        if missing := [name for name in (*self._inner, *self._largest_of) if name not in port_of]:
            raise EngineError(f'{self._spec.path.name}: OpenVINO has no tensor "{missing[0]}"')
        for name in self._largest_of:
            axes = np.arange(len(port_of[name].get_partial_shape()), dtype=np.int64)
            largest = opset.reduce_max(opset.abs(port_of[name]), axes)
            model.add_outputs(opset.broadcast(largest, np.array([rows])).output(0))
            model.outputs[-1].get_tensor().add_names({largest_name(name)})
        for name in self._inner:
            model.add_outputs(name)
        return model


def largest_name(tensor: str) -> str:
    """Return the name under which a compiled model gives out the largest |x| of `tensor`."""
    return f"largest of {tensor}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if not line.startswith("Exception from")), "no reason given")
