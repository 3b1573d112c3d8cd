"""Two models on the same pixels: in float and in INT8, with tensors from inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edge.engine.kind import EngineKind
from edge.protocols import ActivationEngine
from edge.quantize.forms import Forms
from edge.types import Preprocess

__all__ = ["Both", "Tensors"]

Tensors = Mapping[str, NDArray[np.float32]]


class Both:
    """The float model and the INT8 one as one `edge.protocols.Runner`: what is on a canvas goes through both.

    `names` are tensors of both, `inside` more of `quantized`.

    Tensors that are given out are not fused away, so that an engine computes the INT8 model in other steps than
    without, and some values fall to the other of two levels. Measured with OpenVINO 2026.4 on yolov5n and yolox_nano,
    the SQNR of the output moves by less than 0.1 dB, and the difference itself lies 9 to 18 dB below the error. Times
    are taken of models that give out nothing.
    """

    def __init__(
        self, kind: EngineKind, forms: Forms, quantized: bytes, names: Sequence[str], *, inside: Sequence[str]
    ) -> None:
        spec, rows = forms.spec, forms.spec.batch or 1
        exact, in_int8 = forms.float_model(), dataclasses.replace(spec, is_quantized=True)
        self._float: ActivationEngine = kind.activations(spec, names, max_batch=rows, content=exact)
        self._int8: ActivationEngine = kind.activations(in_int8, [*names, *inside], max_batch=rows, content=quantized)

    @property
    def name(self) -> str:
        """Of both, which are of one kind."""
        return self._float.name

    @property
    def preprocess(self) -> Preprocess:
        """What is built into both."""
        return self._float.preprocess

    @property
    def max_batch(self) -> int:
        """Rows of each canvas."""
        return self._float.max_batch

    @property
    def canvases(self) -> tuple[NDArray[np.uint8], ...]:
        """To be filled; those of the other model follow."""
        return self._float.canvases

    def start(self, index: int, count: int) -> None:
        """Begin inference of the first `count` rows of canvas `index` by both."""
        self._int8.canvases[index][:] = self.canvases[index]
        self._float.start(index, count)
        self._int8.start(index, count)

    def wait(self, index: int) -> tuple[Tensors, Tensors]:
        """Return the tensors of the rows last started: in float, in INT8."""
        return self._float.wait(index), self._int8.wait(index)

    def close(self) -> None:
        """Free both."""
        self._float.close()
        self._int8.close()
