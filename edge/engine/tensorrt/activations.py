"""TensorRT as something to look into: a float engine whose inner tensors are brought to the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.kernels import Kernels
from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.inside import CANVASES, InsideRunner
from edge.engine.tensorrt.takes import Take, Whole
from edge.engine.tensorrt.tensors import Tensor
from edge.types import ModelSpec

__all__ = ["TensorRtActivations"]


class TensorRtActivations(InsideRunner):
    """`edge.protocols.ActivationEngine` on an NVIDIA GPU; arguments and errors are those of `InsideRunner`."""

    def __init__(
        self,
        library: TensorRtLibrary,
        spec: ModelSpec,
        names: Sequence[str],
        *,
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> None:
        self._given = {*names, spec.output_name}
        super().__init__(library, spec, names, max_batch=max_batch, content=content)

    def wait(self, index: int) -> dict[str, NDArray[np.float32]]:
        """Return the tensors of the rows last started, by name; valid until the next `start` of this canvas."""
        count = self._finish(index)
        return self._whole.read(index, count)

    def _takes_of(self, kernels: Kernels, tensors: Sequence[Tensor]) -> Sequence[Take]:
        given = [one for one in tensors if one.name in self._given]
        self._whole = Whole(self._owner, given, rows=self._rows, canvases=CANVASES)
        return (self._whole,)
