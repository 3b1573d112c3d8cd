"""Canvases in memory that requests read directly, and outputs in memory that they write directly."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.engine.openvino.binding import import_openvino
from edge.errors import TensorMismatchError
from edge.types import Preprocess

__all__ = ["Rows", "require_rows"]


class Rows:
    """One canvas, its outputs, and the requests that are bound to their rows: for each size, one per place.

    Args:
        compiled: models by the number of rows that each of their requests takes.
        outputs: names of the tensors to be kept.
        preprocess: what the canvas is for.
        rows: of the canvas.
    """

    def __init__(
        self, compiled: Mapping[int, Any], outputs: Sequence[str], *, preprocess: Preprocess, rows: int
    ) -> None:
        size, some_model = preprocess.size, next(iter(compiled.values()))
        self.canvas = np.full((rows, size.height, size.width, 3), preprocess.pad_value, np.uint8)
        # Nodes that compute the same are one in a compiled model, with one tensor under all their names: given an array
        # for each name, only the last one would ever be written.
        ports = {name: min(some_model.output(name).names) for name in outputs}
        self._arrays = {
            port: np.zeros((rows, *tuple(some_model.output(port).shape)[1:]), np.float32) for port in ports.values()
        }
        self._outputs = {name: self._arrays[port] for name, port in ports.items()}
        self._requests = {
            (first, step): self._bind(model, first, step)
            for step, model in compiled.items()
            for first in range(0, rows - step + 1, 1 if step == 1 else step)
        }
        self._sizes = sorted(compiled, reverse=True)
        self._started: list[Any] = []
        self._count = 0

    def start(self, count: int) -> None:
        """Begin inference of the first `count` rows."""
        self._count, first = count, 0
        self._started = []
        while first < count:
            step = next((size for size in self._sizes if first + size <= count), self._sizes[-1])
            self._started.append(self._requests[first, step])
            first += step
        for request in self._started:
            request.start_async()

    def wait(self) -> dict[str, NDArray[np.float32]]:
        """Return the outputs of the rows last started, views by name.

        Raises:
            RuntimeError: if the inference failed.
        """
        try:
            for request in self._started:
                request.wait()
        except RuntimeError:
            self.end()
            raise
        self._started = []
        return {name: array[: self._count] for name, array in self._outputs.items()}

    def end(self) -> None:
        """Return once nothing reads the canvas or writes the outputs any more."""
        started, self._started = self._started, []
        for request in started:
            request.cancel()
        for request in started:
            with contextlib.suppress(RuntimeError):  # a cancelled request says so
                request.wait()

    def run(self, images: NDArray[np.uint8], *, step: int) -> dict[str, NDArray[np.float32]]:
        """Infer `step` images at once and return copies of their outputs."""
        self.canvas[:step] = images
        self._requests[0, step].infer()
        return {name: array[:step].copy() for name, array in self._outputs.items()}

    def _bind(self, model: Any, first: int, step: int) -> Any:
        ov = import_openvino()
        request = model.create_infer_request()
        request.set_input_tensor(ov.Tensor(self.canvas[first : first + step], shared_memory=True))
        for name, array in self._arrays.items():
            request.set_tensor(name, ov.Tensor(array[first : first + step], shared_memory=True))
        return request


def require_rows(index: int, count: int, *, canvases: int, max_batch: int) -> None:
    """Refuse a canvas or rows that are not there.

    Raises:
        TensorMismatchError: then.
    """
    if not (0 <= index < canvases and 1 <= count <= max_batch):
        raise TensorMismatchError(
            f"canvas {index}, rows {count}: this engine has canvases 0 to {canvases - 1} of 1 to {max_batch} rows"
        )
