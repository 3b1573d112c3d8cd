"""What all that runs an engine of TensorRT has in common: a GPU, what it owns there, and what it says of itself."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.gpu import Gpu
from edge.engine.cuda.memory import HostArray, Owner
from edge.engine.cuda.stream import Stream
from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.errors import EngineError, TensorMismatchError
from edge.types import ModelSpec, Preprocess

__all__ = ["TensorRtRunner"]

_log = logging.getLogger(__name__)


class TensorRtRunner:
    """`edge.protocols.Runner` but for `start` and `wait`.

    Everything on the GPU is made and used inside `_at_work`, and kept by `_owner`; streams come from `_stream`, and are
    drained before anything is freed.

    Args:
        library: TensorRT.
        spec: what the model is.
        max_batch: rows of each canvas.

    Raises:
        EngineError: if there is no driver.
        MissingDependencyError: if pycuda is not installed.
    """

    def __init__(self, library: TensorRtLibrary, spec: ModelSpec, *, max_batch: int) -> None:
        self._library, self._spec, self._max_batch = library, spec, max_batch
        self._canvases: Sequence[HostArray] = ()
        self._streams: list[Stream] = []
        self._gpu, self._owner = Gpu(), Owner()

    @property
    def name(self) -> str:
        """`tensorrt` or `tensorrt_rtx`, and its version."""
        return f"{self._library.name} {self._library.version}"

    @property
    def preprocess(self) -> Preprocess:
        """The preprocess that the kernel computes."""
        return self._spec.preprocess

    @property
    def max_batch(self) -> int:
        """Rows of each canvas that may be used."""
        return self._max_batch

    @property
    def canvases(self) -> tuple[NDArray[np.uint8], ...]:
        """Two canvases, uint8 (max_batch, H, W, 3) RGB, in pinned memory: gone with `close`."""
        return tuple(canvas.array[: self._max_batch] for canvas in self._canvases)

    def close(self) -> None:
        """Wait for what runs, and free everything; a second time does nothing, or what the first could not.

        Raises:
            EngineError: if the GPU cannot be spoken to.
        """
        if self._gpu.is_closed:
            return
        with self._at_work():
            for stream in self._streams:
                stream.drain()
            self._canvases, self._streams = (), []
            try:
                self._owner.close()
            except EngineError as error:  # also where one thing was not freed, the others were
                _log.warning("closing all the same reason=%s", error)
        self._gpu.close()

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        self._require_open()
        try:
            with self._gpu.current():
                yield
        except EngineError as error:
            _let_go(error)
            raise EngineError(f"{self._spec.name}: {error.problem}", hint=error.hint) from error

    def _stream(self) -> Stream:
        stream = self._owner.keep(Stream())
        self._streams.append(stream)
        return stream

    def _require_open(self) -> None:
        if self._gpu.is_closed:
            raise EngineError(f"{self._spec.name}: the engine is closed")

    def _require_rows(self, index: int, count: int) -> None:
        self._require_open()
        if not (0 <= index < len(self._canvases) and 1 <= count <= self._max_batch):
            raise TensorMismatchError(
                f"canvas {index}, rows {count}: this engine has canvases 0 to {len(self._canvases) - 1} "
                f"of 1 to {self._max_batch} rows"
            )


def _let_go(error: BaseException | None) -> None:
    """Empty the frames of what was raised: they hold what lives on the GPU, until nobody can free it any more."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
