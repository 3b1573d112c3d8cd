"""TensorRT as something to calibrate by: the GPU counts what is in its tensors, which stay where they are."""

from __future__ import annotations

from collections.abc import Sequence

from edge.engine.cuda.kernels import Kernels
from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.inside import CANVASES, InsideRunner
from edge.engine.tensorrt.takes import Counts, Largest, Take
from edge.engine.tensorrt.tensors import Tensor
from edge.types import ModelSpec, Observed

__all__ = ["TensorRtObserving"]


class TensorRtObserving(InsideRunner):
    """`edge.protocols.ObservingEngine` on an NVIDIA GPU: it gives counts, never values.

    Args:
        library: TensorRT.
        spec: what the model is.
        names: tensors to count.
        largest_of: other tensors, of which the largest |x| is given.
        max_batch: rows of each canvas.
        content: the ONNX model, where it is not what the file of `spec` holds.

    Raises:
        EngineError: if the engine cannot be built or run here, or has no tensor of such a name.
        MissingDependencyError: if pycuda is not installed.
    """

    def __init__(
        self,
        library: TensorRtLibrary,
        spec: ModelSpec,
        names: Sequence[str],
        *,
        largest_of: Sequence[str] = (),
        max_batch: int = 1,
        content: bytes | None = None,
    ) -> None:
        self._counted, self._largest_of = tuple(names), tuple(largest_of)
        self._of_counts: Counts | None = None
        self._of_peaks: Largest | None = None
        super().__init__(library, spec, (*names, *largest_of), max_batch=max_batch, content=content)

    def wait(self, index: int) -> dict[str, Observed]:
        """Return the counts and peaks of the rows last started, by name."""
        count, found = self._finish(index), dict[str, Observed]()
        if self._of_counts is not None:
            found.update(self._of_counts.read(index))
        if self._of_peaks is not None:
            found.update(self._of_peaks.read(index, count))
        return found

    def _takes_of(self, kernels: Kernels, tensors: Sequence[Tensor]) -> Sequence[Take]:
        if self._counted:
            self._of_counts = Counts(self._owner, kernels, self._counted, canvases=CANVASES)
        if self._largest_of:
            self._of_peaks = Largest(
                self._owner, kernels, self._largest_of, step=self._step, rows=self._rows, canvases=CANVASES
            )
        return [take for take in (self._of_counts, self._of_peaks) if take is not None]
