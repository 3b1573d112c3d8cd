"""OpenVINO as an engine: the rows of a canvas run side by side.

A CPU gains nothing from a batch dimension (docs/adr/0006): the rows of a canvas run as independent requests, unless
`rows_per_request` asks for more. Input and output tensors are slices of arrays made once, so that nothing is copied or
allocated per frame.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.engine.cores import available_cores
from edge.engine.openvino.binding import require_precision
from edge.engine.openvino.compiler import Compiler, Rows, RowsRunner
from edge.model.graph import graph_from_bytes
from edge.model.rebatch import largest_difference, rebatch
from edge.types import ModelSpec, Precision

__all__ = ["OpenVinoEngine", "OpenVinoOptions", "Options"]

_log = logging.getLogger(__name__)
_CANVASES = 2  # one is inferred while the other is filled
_TYPE_OF_PRECISION = {Precision.FP32: "f32", Precision.FP16: "f16"}
_REBATCH_TOLERANCE = 1e-4  # of the largest output: other kernels may sum in another order
_INT8_TOLERANCE = 0.05  # sums that end close to the middle of two levels fall to either side


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVinoOptions:
    """How to run; `threads` None = all cores; `rows_per_request` > 1 puts a real batch dimension into the graph."""

    max_batch: int
    precision: Precision = Precision.FP32
    threads: int | None = None
    rows_per_request: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.rows_per_request <= self.max_batch:
            raise ValueError(f"rows_per_request is 1 to max_batch={self.max_batch}, got {self.rows_per_request}")


class OpenVinoEngine(RowsRunner):
    """`edge.protocols.Engine` on the CPU.

    `content`: the model, where it is not what the file of `spec` holds. Raises `EngineError` if OpenVINO cannot read,
    compile or run the model, or this CPU lacks the precision; MissingDependencyError if openvino is not installed.
    """

    def __init__(self, spec: ModelSpec, options: OpenVinoOptions, *, content: bytes | None = None) -> None:
        super().__init__(spec, options.max_batch)
        batched = self._rebatched(content) if spec.batch == 1 and options.rows_per_request > 1 else None
        self._config = self._compile_config(options)
        self._one = Compiler(spec, self._config, content=content)
        self._many = self._one if batched is None else Compiler(spec, self._config, content=batched)
        sizes = self._request_sizes(options, has_batch=spec.batch is None or batched is not None)
        self._rows = self._make_rows(sizes)
        if len(sizes) > 1 and not self._rows_agree(sizes[0]):
            self._rows = self._make_rows([1])

    def wait(self, index: int) -> NDArray[np.float32]:
        """Valid until the next `start` of this canvas."""
        return self._outputs(index)[self._spec.output_name]

    def _compile_config(self, options: OpenVinoOptions) -> dict[str, str]:
        threads = options.threads or available_cores()
        config = {
            "INFERENCE_NUM_THREADS": str(threads),
            "NUM_STREAMS": str(min(threads, -(-options.max_batch // options.rows_per_request))),
            "INFERENCE_PRECISION_HINT": _TYPE_OF_PRECISION.get(options.precision, "f32"),
        }
        require_precision(options.precision)
        return config

    def _make_rows(self, sizes: list[int]) -> tuple[Rows, ...]:
        rows = -(-self._max_batch // sizes[-1]) * sizes[-1]
        compiled = {size: (self._one if size == self._spec.batch else self._many).compile(size) for size in sizes}
        outputs = (self._spec.output_name,)
        return tuple(Rows(compiled, outputs, preprocess=self._spec.preprocess, rows=rows) for _ in range(_CANVASES))

    def _request_sizes(self, options: OpenVinoOptions, *, has_batch: bool) -> list[int]:
        # Largest first; the last one also takes what is left over. A model that is fixed at B > 1 leaves no choice.
        if self._spec.batch is not None and self._spec.batch > 1:
            return [self._spec.batch]
        return sorted({options.rows_per_request if has_batch else 1, 1}, reverse=True)

    def _rebatched(self, content: bytes | None) -> bytes | None:
        path = self._spec.path
        result = rebatch(path if content is None else graph_from_bytes(content, str(path)), self._spec)
        if result.model is None:
            _log.warning("rows run one by one model=%s reason=%s", self._spec.name, result.reason)
        return result.model

    def _rows_agree(self, many: int) -> bool:
        """Prove on random pixels that a batch gives what each of its rows gives alone, and say so where it does not."""
        rows, output = self._rows[0], self._spec.output_name
        images = np.random.default_rng(0).integers(0, 256, (many, *rows.canvas.shape[1:]), np.uint8)

        def run(images: NDArray[np.uint8]) -> NDArray[np.float32]:
            return rows.run(images, step=len(images))[output]

        difference = largest_difference(run, run, images)
        limit = self._tolerance() * float(np.abs(run(images[:1])).max())
        rows.canvas[:] = self._spec.preprocess.pad_value
        if difference > limit:
            _log.warning("rows run one by one model=%s difference=%.3g limit=%.3g", self._spec.name, difference, limit)
        return difference <= limit

    def _tolerance(self) -> float:
        return _INT8_TOLERANCE if self._spec.is_quantized else _REBATCH_TOLERANCE


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`threads` None = all cores; `rows_per_request` > 1 runs that many rows as one batch."""

    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    rows_per_request: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
