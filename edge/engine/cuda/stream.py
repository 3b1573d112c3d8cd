"""Streams and events, freed when they are closed: pycuda frees its own when nobody refers to them any more."""

from __future__ import annotations

import logging
from typing import Any

from edge.engine.cuda.binding import cuda_errors, import_pycuda
from edge.errors import EngineError

__all__ = ["CudaEvent", "Stream"]

_log = logging.getLogger(__name__)


class Stream:
    """Work that is done in the order in which it was given, made and closed while its GPU is current."""

    def __init__(self) -> None:
        with cuda_errors("making a stream"):
            self._stream: Any = import_pycuda().Stream()

    @property
    def raw(self) -> Any:
        """Pycuda's."""
        return self._stream

    @property
    def handle(self) -> int:
        """The driver's."""
        return int(self._stream.handle)

    def synchronize(self) -> None:
        """Wait until everything given is done.

        Raises:
            EngineError: if some of it failed.
        """
        with cuda_errors("waiting for a stream"):
            self._stream.synchronize()

    def drain(self) -> None:
        """Wait until nothing of it runs any more, also where the GPU has failed."""
        try:
            self.synchronize()
        except EngineError as error:
            _log.warning("closing all the same reason=%s", error)

    def close(self) -> None:
        """Free it."""
        self._stream = None


class CudaEvent:
    """A place in a stream that can be waited for, without burning a core meanwhile.

    Args:
        is_timed: the GPU's time there is kept, which costs a little.
    """

    def __init__(self, *, is_timed: bool = False) -> None:
        cuda = import_pycuda()
        flags = cuda.event_flags.BLOCKING_SYNC | (0 if is_timed else cuda.event_flags.DISABLE_TIMING)
        with cuda_errors("making an event"):
            self._event: Any = cuda.Event(flags)

    def record(self, stream: Stream) -> None:
        """Put it behind what the stream was given."""
        self._event.record(stream.raw)

    def synchronize(self) -> None:
        """Wait until the stream has come there."""
        self._event.synchronize()

    def seconds_until(self, later: CudaEvent) -> float:
        """Return the GPU's time from here to `later`, both timed, and both reached."""
        return 1e-3 * float(self._event.time_till(later._event))

    def close(self) -> None:
        """Free it."""
        self._event = None
