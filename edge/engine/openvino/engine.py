"""OpenVINO as an engine, and as something to look into: the rows of a canvas run side by side.

A CPU gains nothing from a batch dimension (docs/adr/0006): the rows of a canvas run as independent requests. Input and
output tensors are slices of arrays made once, so that nothing is copied or allocated per frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.engine.averaging import model_input
from edge.engine.kinds import available_cores
from edge.engine.openvino.binding import require_precision
from edge.engine.openvino.compiler import Compiler, Rows, RowsRunner, largest_name
from edge.types import ModelSpec, Precision

__all__ = ["OpenVinoActivations", "OpenVinoEngine", "Options"]

_CANVASES = 2  # one is inferred while the other is filled
_TYPE_OF_PRECISION = {Precision.FP32: "f32", Precision.FP16: "f16"}


class OpenVinoEngine(RowsRunner):
    """`edge.protocols.Engine` on the CPU.

    `threads` None: all cores. `content`: the model, where it is not what the file of `spec` holds.
    Raises `EngineError` if OpenVINO cannot read, compile or run the model, or this CPU lacks the precision;
    MissingDependencyError if openvino is not installed.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        max_batch: int,
        precision: Precision = Precision.FP32,
        threads: int | None = None,
        content: bytes | None = None,
    ) -> None:
        super().__init__(spec, max_batch)
        require_precision(precision)
        threads, step = threads or available_cores(), spec.batch or 1
        config = {
            "INFERENCE_NUM_THREADS": str(threads),
            "NUM_STREAMS": str(min(threads, -(-max_batch // step))),
            "INFERENCE_PRECISION_HINT": _TYPE_OF_PRECISION.get(precision, "f32"),
        }
        self._compiler = Compiler(spec, config, content=content)
        model, outputs = self._compiler.compile(step), (spec.output_name,)
        self._rows = tuple(
            Rows(model, outputs, preprocess=spec.preprocess, rows=-(-max_batch // step) * step, step=step)
            for _ in range(_CANVASES)
        )

    def wait(self, index: int) -> NDArray[np.float32]:
        """Valid until the next `start` of this canvas."""
        return self._outputs(index)[self._spec.output_name]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`threads` None = all cores."""

    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None


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
        compiled = compiler.compile(step)
        self._largest = {name: largest_name(name) for name in largest_of}
        outputs = tuple(dict.fromkeys((*inner, spec.output_name, *self._largest.values())))
        rows = -(-self.max_batch // step) * step
        canvases = cores + _IN_FLIGHT_BESIDE_CORES
        self._rows = tuple(
            Rows(compiled, outputs, preprocess=spec.preprocess, rows=rows, step=step) for _ in range(canvases)
        )
        self._gives_input = len(inner) < len(names)
        self._counts = [0] * canvases

    def start(self, index: int, count: int) -> None:
        super().start(index, count)
        self._counts[index] = count

    def wait(self, index: int) -> dict[str, NDArray[np.float32]]:
        """Return the tensors of the rows last started, by name; valid until the next `start` of this canvas."""
        found = self._outputs(index)
        for name, given_out in self._largest.items():
            found[name] = found.pop(given_out)
        if self._gives_input:  # OpenVINO cannot be asked for it: it moves the order of colours into the first node
            found[self._spec.input_name] = model_input(self.canvases[index][: self._counts[index]], self.preprocess)
        return found
