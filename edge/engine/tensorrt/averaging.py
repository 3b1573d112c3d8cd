"""TensorRT as something to take means by: the GPU adds what is in its tensors, which stay where they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.kernels import Kernels
from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.inside import CANVASES, InsideRunner
from edge.engine.tensorrt.takes import Means, Take
from edge.engine.tensorrt.tensors import Tensor
from edge.types import ModelSpec

__all__ = ["TensorRtAveraging"]


class TensorRtAveraging(InsideRunner):
    """`edge.protocols.AveragingEngine` on an NVIDIA GPU; arguments and errors are those of `InsideRunner`."""

    def __init__(
        self,
        library: TensorRtLibrary,
        spec: ModelSpec,
        names: Sequence[str],
        *,
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> None:
        self._averaged = frozenset(names)
        super().__init__(library, spec, names, max_batch=max_batch, content=content)

    def wait(self, index: int) -> dict[str, NDArray[np.float64]]:
        """Return the means of the rows last started, by name; valid until the next `start` of this canvas."""
        count = self._finish(index)
        return self._means.read(index, count)

    def _takes_of(self, kernels: Kernels, tensors: Sequence[Tensor]) -> Sequence[Take]:
        averaged = [one for one in tensors if one.name in self._averaged]
        self._means = Means(self._owner, kernels, averaged, rows=self._rows, canvases=CANVASES)
        return (self._means,)
