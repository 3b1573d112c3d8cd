"""A source of frames that are given beforehand, with stalls and failures on demand."""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.errors import EndOfStream, SourceError
from edge.types import ClockSource, DropReason, Frame, FrameHeader, ImageSize, Preprocess, SourceCounts, StreamId
from edge.vision.boxes import fit


@dataclass(frozen=True, slots=True)
class Stall:
    """In place of a frame: nothing comes for so long (for ever: `float("inf")`)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Breakage:
    """In place of a frame: the stream breaks with this error."""

    error: SourceError


class RecordedSource:
    """Implements `edge.protocols.FrameSource` over images that are in memory or made on the way.

    Args:
        stream: its id.
        images: uint8 (H, W, 3) RGB of any size, with `Stall` and `Breakage` in between.
        preprocess: what the frames are fitted for; they are scaled by picking the nearest pixel.
        fps: times of the frames; the pace too, if live.
        is_live: frames come at their pace, and the newest one wins; otherwise they wait for their reader.
    """

    def __init__(
        self,
        stream: StreamId,
        images: Iterable[NDArray[np.uint8] | Stall | Breakage],
        *,
        preprocess: Preprocess,
        fps: float = 30.0,
        is_live: bool = False,
    ) -> None:
        self._stream = stream
        self._images: Iterator[NDArray[np.uint8] | Stall | Breakage] = iter(images)
        self._preprocess = preprocess
        self._period_s = 1 / fps
        self._is_live = is_live
        self._closing = threading.Event()
        self._decoded = self._taken = 0
        self._begun = self._due = 0.0
        self._end: SourceError | None = None

    @property
    def stream(self) -> StreamId:
        return self._stream

    @property
    def is_live(self) -> bool:
        """Whether frames come at their own pace, so that the newest one wins."""
        return self._is_live

    def open(self) -> None:
        self._begun = self._due = time.monotonic()

    def read(self, timeout_s: float) -> Frame | None:
        """Return the next frame; see `FrameSource.read`."""
        if self._closing.is_set():
            raise SourceError(f"{self._stream}: read from a closed source")
        if self._closing.wait(min(timeout_s, max(0.0, self._due - time.monotonic()))):
            return None
        newest = self._newest()
        if newest is None and self._end is not None:
            raise self._end
        if newest is None:
            return None
        self._taken += 1
        return self._frame_of(newest)

    def counts(self) -> SourceCounts:
        late = self._decoded - self._taken
        return SourceCounts(decoded=self._decoded, dropped={DropReason.LATE: late} if late else {})

    def close(self) -> None:
        """Stop; wakes a `read` that waits in another thread."""
        self._closing.set()

    def _newest(self) -> NDArray[np.uint8] | None:
        """Return the frame that is due, passing over late ones if live."""
        found: NDArray[np.uint8] | None = None
        while self._end is None and self._due <= time.monotonic() and (found is None or self._is_live):
            match next(self._images, None):
                case None:
                    self._end = EndOfStream(f"{self._stream}: end of the recording")
                case Breakage(error):
                    self._end = error
                case Stall(seconds):
                    self._due = max(self._due, time.monotonic()) + seconds
                    break
                case image:
                    found = image
                    self._decoded += 1
                    self._due += self._period_s if self._is_live else 0.0
        return found

    def _frame_of(self, image: NDArray[np.uint8]) -> Frame:
        height, width = image.shape[:2]
        where = fit(ImageSize(width=width, height=height), self._preprocess)
        header = FrameHeader(
            stream=self._stream,
            frame=self._decoded,
            pts_ns=round((self._decoded - 1) * self._period_s * 1e9),
            captured_at_ns=time.time_ns(),
            clock=ClockSource.ARRIVAL if self._is_live else ClockSource.FILE,
            source_size=where.source,
            read_at_ns=time.monotonic_ns(),
        )
        rows = np.arange(where.fitted.height) * height // where.fitted.height
        columns = np.arange(where.fitted.width) * width // where.fitted.width
        return Frame(header=header, letterbox=where, image=image[rows[:, None], columns])
