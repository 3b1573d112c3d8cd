"""From an ONNX file to a compiled model that takes uint8 canvases: preprocess and layout become part of the graph.

Canvases are memory that requests read directly, outputs memory that they write directly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.engine.openvino.binding import core, import_openvino, is_int8_in_float, name_and_version
from edge.errors import EngineError, TensorMismatchError
from edge.model.graph import Graph, graph_from_bytes, load_graph
from edge.model.qdq import with_float_arithmetic, with_uint8_activations
from edge.types import ColourOrder, ModelSpec, Preprocess

__all__ = ["Compiler", "Rows", "RowsRunner", "largest_name"]

_HANDING_ON = frozenset(("Dropout", "Identity"))


class Compiler:
    """Compiles one model for different numbers of rows.

    `config`: OpenVINO's properties. `content`: the model, where it is not what the file of `spec` holds. `inner`:
    tensors inside the graph to be given out too, not its input. `largest_of`: tensors inside the graph whose largest
    |x| of all rows is given out, once for each row.
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
        """Raises `EngineError` if OpenVINO cannot read or compile it."""
        try:
            model = self._with_preprocess(self._read(rows))
            return core().compile_model(model, "CPU", self._config)
        except RuntimeError as error:
            raise EngineError(f"{self._spec.path.name}: OpenVINO cannot compile it: {_first_line(error)}") from error

    def _read(self, rows: int) -> Any:
        spec = self._spec
        model = self._with_inner(core().read_model(self._source()), rows)
        size = spec.preprocess.size
        model.reshape({spec.input_name: [rows, 3, size.height, size.width]})
        return model

    def _source(self) -> bytes | str:
        """OpenVINO computes wrong results behind a Concat of int8 activations; of the same as uint8, right ones.

        Where it does not compute INT8, or not exactly, its levels are computed in float (docs/adr/0006).
        """
        if not self._spec.is_quantized:
            return str(self._spec.path) if self._content is None else self._content
        graph = self._graph()
        return with_float_arithmetic(graph) if is_int8_in_float() else with_uint8_activations(graph)

    def _graph(self) -> Graph:
        path = self._spec.path
        return load_graph(path) if self._content is None else graph_from_bytes(self._content, str(path))

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
        for index in range(len(model.outputs)):
            prepost.output(index).tensor().set_element_type(ov.Type.f32)
        return prepost.build()

    def _with_inner(self, model: Any, rows: int) -> Any:
        """Give out what is asked for, in the model as it was read.

        Once its shapes are known OpenVINO rewrites a model: a Transpose in front of a MatMul becomes a flag of that.
        What is given out by then is kept.
        """
        opset = self._ov.opset13
        port_of = {name: port for op in model.get_ops() for port in op.outputs() for name in port.get_names()}
        ports = {name: port_of[self._handed_on(name, port_of)] for name in (*self._inner, *self._largest_of)}
        for name in self._largest_of:
            magnitudes = opset.reshape(opset.abs(ports[name]), np.array([-1]), False)  # its rank may be open yet
            largest = opset.reduce_max(magnitudes, np.array([0]))
            model.add_outputs(opset.broadcast(largest, np.array([rows])).output(0))
            model.outputs[-1].get_tensor().add_names({largest_name(name)})
        for name in self._inner:
            own = min(ports[name].get_names())
            model.add_outputs(own)
            model.output(own).get_tensor().add_names({name})
        return model

    def _handed_on(self, name: str, known: Collection[str]) -> str:
        """Return `name`, or what the same values are called where OpenVINO has read the node behind them as nothing."""
        graph, found = None, name
        while found not in known:
            graph = graph or self._graph()
            behind = [node.outputs[0] for node in graph.consumers(found) if node.op_type in _HANDING_ON]
            if not behind:
                raise EngineError(f'{self._spec.path.name}: OpenVINO has no tensor "{name}"')
            found = behind[0]
        return found


def largest_name(tensor: str) -> str:
    return f"largest of {tensor}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if not line.startswith("Exception from")), "no reason given")


class Rows:
    """One canvas, its outputs, and the requests that are bound to their rows.

    `compiled`: takes `step` rows at once. `outputs`: names of the tensors to be kept. `rows`: of the canvas, a multiple
    of `step`.
    """

    def __init__(self, compiled: Any, outputs: Sequence[str], *, preprocess: Preprocess, rows: int, step: int) -> None:
        size = preprocess.size
        self.canvas = np.full((rows, size.height, size.width, 3), preprocess.pad_value, np.uint8)
        # Nodes that compute the same are one in a compiled model, with one tensor under all their names: given an array
        # for each name, only the last one would ever be written.
        ports = {name: min(compiled.output(name).names) for name in outputs}
        self._rows, shapes = rows, {port: tuple(compiled.output(port).shape) for port in ports.values()}
        self._arrays = {
            port: np.zeros((rows * _entries(port, shape, step), *shape[1:]), np.float32)
            for port, shape in shapes.items()
        }
        self._outputs = {name: self._arrays[port] for name, port in ports.items()}
        self._requests = [self._bind(compiled, first, step) for first in range(0, rows, step)]
        self._step = step
        self._started: list[Any] = []
        self._count = 0

    def start(self, count: int) -> None:
        self._count = count
        self._started = self._requests[: -(-count // self._step)]
        for request in self._started:
            request.start_async()

    def wait(self) -> dict[str, NDArray[np.float32]]:
        """Views, by name. Raises `RuntimeError` if the inference failed."""
        try:
            for request in self._started:
                request.wait()
        except RuntimeError:
            self.end()
            raise
        self._started = []
        return {name: self._part(array, 0, self._count) for name, array in self._outputs.items()}

    def end(self) -> None:
        """Return once nothing reads the canvas or writes the outputs any more."""
        started, self._started = self._started, []
        for request in started:
            request.cancel()
        for request in started:
            with contextlib.suppress(RuntimeError):  # a cancelled request says so
                request.wait()

    def _bind(self, model: Any, first: int, step: int) -> Any:
        ov = import_openvino()
        request = model.create_infer_request()
        request.set_input_tensor(ov.Tensor(self.canvas[first : first + step], shared_memory=True))
        for name, array in self._arrays.items():
            request.set_tensor(name, ov.Tensor(self._part(array, first, step), shared_memory=True))
        return request

    def _part(self, array: NDArray[np.float32], first: int, count: int) -> NDArray[np.float32]:
        """Return what `array` holds of some rows: attention over areas has several entries for each."""
        entries = len(array) // self._rows
        return array[first * entries : (first + count) * entries]


def _entries(name: str, shape: Sequence[int], rows: int) -> int:
    """Return how many entries of the first axis one row has. Raises `EngineError` if rows are not apart in it."""
    if not shape or shape[0] % rows:
        raise EngineError(f'tensor "{name}" is {list(shape)} for {rows} images: its first axis is not one of images')
    return shape[0] // rows


class RowsRunner:
    """`edge.protocols.Runner` but for `wait`: canvases, the rows of each inferred by requests of their own."""

    def __init__(self, spec: ModelSpec, max_batch: int) -> None:
        self._spec = spec
        self._rows: tuple[Rows, ...] = ()
        self.name = name_and_version()
        self.preprocess = spec.preprocess
        self.max_batch = max_batch

    @property
    def canvases(self) -> tuple[NDArray[np.uint8], ...]:
        return tuple(rows.canvas[: self.max_batch] for rows in self._rows)

    def start(self, index: int, count: int) -> None:
        """TensorMismatchError if there is no such canvas, or it has fewer rows."""
        if not (0 <= index < len(self._rows) and 1 <= count <= self.max_batch):
            raise TensorMismatchError(
                f"canvas {index}, rows {count}: this engine has canvases 0 to {len(self._rows) - 1} of 1 to "
                f"{self.max_batch} rows"
            )
        self._rows[index].start(count)

    def close(self) -> None:
        """Free the requests and the compiled models; what is still being inferred is waited for and forgotten."""
        for rows in self._rows:
            rows.end()
        self._rows = ()

    def _outputs(self, index: int) -> dict[str, NDArray[np.float32]]:
        try:
            return self._rows[index].wait()
        except RuntimeError as error:
            raise EngineError(f"{self._spec.path.name}: inference failed: {error}") from error
