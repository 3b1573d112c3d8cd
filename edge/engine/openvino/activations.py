"""OpenVINO as something to look into: runs images one by one and gives out tensors from inside the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.engine.cores import available_cores
from edge.engine.openvino.compiler import Compiler, Rows, RowsRunner, largest_name
from edge.types import ColourOrder, ModelSpec, Preprocess

__all__ = ["OpenVinoActivations"]

_IN_FLIGHT_BESIDE_CORES = 2  # one that is being read, and one that waits, so that no core ever does


class OpenVinoActivations(RowsRunner):
    """`edge.protocols.ActivationEngine` and `ObservingEngine` on the CPU.

    Every image is one request on one thread, so that its values depend neither on the rows beside it nor on the number
    of cores. Only a model whose batch is fixed to more than one gets that many images at once. `names`: tensors to give
    out. `largest_of`: other tensors of which only the largest |x| of an image is given out, float32 (count,).
    `max_batch`: rows of each canvas. `content`: the model, where it is not what the file of `spec` holds.
    Raises `EngineError` if OpenVINO cannot read, compile or run the model, or it has no tensor of such a name;
    MissingDependencyError if openvino is not installed.
    """

    def __init__(
        self,
        spec: ModelSpec,
        names: Sequence[str],
        *,
        largest_of: Sequence[str] = (),
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> None:
        super().__init__(spec, max_batch)
        cores = available_cores()
        config = {"INFERENCE_NUM_THREADS": str(cores), "NUM_STREAMS": str(cores), "INFERENCE_PRECISION_HINT": "f32"}
        inner = tuple(name for name in names if name != spec.input_name)
        step = spec.batch or 1
        compiler = Compiler(spec, config, content=content, inner=inner, largest_of=largest_of)
        compiled = {step: compiler.compile(step)}
        self._largest = {name: largest_name(name) for name in largest_of}
        outputs = tuple(dict.fromkeys((*inner, spec.output_name, *self._largest.values())))
        rows = -(-self._max_batch // step) * step
        canvases = cores + _IN_FLIGHT_BESIDE_CORES
        self._rows = tuple(Rows(compiled, outputs, preprocess=spec.preprocess, rows=rows) for _ in range(canvases))
        self._input = _Input(spec.preprocess, rows) if len(inner) < len(names) else None
        self._counts = [0] * canvases

    def start(self, index: int, count: int) -> None:
        super().start(index, count)
        self._counts[index] = count

    def wait(self, index: int) -> dict[str, NDArray[np.float32]]:
        """Return the tensors of the rows last started, by name; valid until the next `start` of this canvas."""
        found = self._outputs(index)
        for name, given_out in self._largest.items():
            found[name] = found.pop(given_out)
        if self._input is not None:
            found[self._spec.input_name] = self._input.of(self.canvases[index][: self._counts[index]])
        return found


class _Input:
    """Input of the first node. OpenVINO cannot be asked for it: it moves the order of colours into that node."""

    def __init__(self, preprocess: Preprocess, rows: int) -> None:
        levels = np.arange(256) * preprocess.scale
        pairs = zip(preprocess.mean, preprocess.std, strict=True)
        self._values = [((levels - mean) / std).astype(np.float32) for mean, std in pairs]
        self._channels = (2, 1, 0) if preprocess.colour_order is ColourOrder.BGR else (0, 1, 2)
        self._array = np.empty((rows, 3, preprocess.size.height, preprocess.size.width), np.float32)

    def of(self, canvas: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return float32 (count, 3, H, W), valid until the next call."""
        for channel, (source, values) in enumerate(zip(self._channels, self._values, strict=True)):
            np.take(values, canvas[..., source], out=self._array[: len(canvas), channel], mode="clip")
        return self._array[: len(canvas)]
