"""The life of one stream: connect, watch, take down, wait, connect again; with a new source every time.

    IDLE -> CONNECTING -> STREAMING -> TEARDOWN -> BACKOFF -> CONNECTING ...        CLOSED at any time

It has no thread of its own: the thread that reads drives it.
"""

from __future__ import annotations

import enum
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from edge.errors import EdgeError, EndOfStream, SourceError
from edge.media.backoff import CameraBackoff
from edge.media.probe import ProbeWatch
from edge.media.tally import add_counts
from edge.media.threads import join_or_remember
from edge.protocols import FrameSource
from edge.types import Frame, FrameHeader, SourceCounts, StreamId, StreamState

__all__ = ["Camera", "CameraPhase", "StreamStatus"]

_log = logging.getLogger(__name__)

FIRST_FRAME_S = 8.0
FILE_SILENCE_S = 10.0
KEY_FRAME_S = 30.0  # of frames that are decoded and not clean; then a new connection may bring a key frame
WATCH_S = 0.1  # how often a wait looks whether the camera has returned
INSIDE = 8  # frames at most that a source has decoded and not given out yet
TEARDOWN_S = 5.0


class CameraPhase(enum.Enum):
    """Where in its life a camera is."""

    IDLE = "idle"
    CONNECTING = "connecting"
    STREAMING = "streaming"
    TEARDOWN = "teardown"
    BACKOFF = "backoff"
    ENDED = "ended"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """What is reported when a stream changes its state; `reason` holds no credential."""

    stream: StreamId
    state: StreamState
    reason: str
    reconnects: int


class Camera:
    """A `FrameSource` made of many: whatever happens to a live stream, its reader only sees a pause.

    Args:
        stream: its id.
        make_source: gives a new source for every connection.
        is_live: False for files read as fast as possible: their errors and their end are raised.
        is_endless: False for files also when they are played at their own pace.
        stall_s: a live stream without a frame for so long is taken down.
        first_frame_s: the same for the first frame of a connection.
        watch: begins to watch for the return of a camera that was lost; its argument tells whether it has refused us.
            A camera that is known to be away is not connected to, and one that has returned is at once.
        on_status: called with every change of state or reason, by the reading thread; must return at once. A stream
            that is down stays down until frames arrive again, however often it is tried meanwhile. `close` changes no
            state: who closes knows why.
        address: what is logged of where it is; without secrets.
        remedy: what is logged of what to do when it is lost and the error does not tell.
    """

    def __init__(
        self,
        stream: StreamId,
        make_source: Callable[[], FrameSource],
        *,
        is_live: bool,
        is_endless: bool,
        stall_s: float,
        first_frame_s: float = FIRST_FRAME_S,
        backoff: CameraBackoff | None = None,
        watch: Callable[[bool], ProbeWatch] | None = None,
        on_status: Callable[[StreamStatus], None] | None = None,
        address: str = "",
        remedy: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._make_source = make_source
        self._is_live = is_live
        self._is_endless = is_endless
        self._stall_s = stall_s
        self._first_frame_s = max(first_frame_s, stall_s)
        self._backoff = backoff or CameraBackoff()
        self._begin_watch = watch
        self._watch: ProbeWatch | None = None
        self._on_status = on_status
        self._address = address
        self._remedy = remedy
        self._clock = clock
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._source: FrameSource | None = None
        self._past = SourceCounts()
        self._phase = CameraPhase.IDLE
        self._status: StreamStatus | None = None
        self._due = 0.0
        self._streaming_since = 0.0
        self._silent_s = 0.0
        self._decoded_in_silence = 0
        self._reconnects = 0
        self._last: FrameHeader | None = None
        self._shift_ns = 0
        self.is_stuck = False

    @property
    def stream(self) -> StreamId:
        """The stream that this camera reads."""
        return self._stream

    @property
    def is_live(self) -> bool:
        """Whether frames come at their own pace, so that the newest one wins."""
        return self._is_live

    @property
    def phase(self) -> CameraPhase:
        """Where in its life it is."""
        return self._phase

    @property
    def due_in_s(self) -> float:
        """How long until the next attempt, in a backoff; otherwise until a stream without frames counts as stalled."""
        return max(0.0, self._due - self._clock())

    @property
    def is_known_away(self) -> bool:
        """Whether it is waited for and nothing answers, so that no connection is tried."""
        watch = self._watch
        return watch is not None and watch.is_known_away

    @property
    def reconnects(self) -> int:
        """How many connections were begun after the first one."""
        return self._reconnects

    def open(self) -> None:
        """Begin the first connection.

        Raises:
            SourceError: if a file cannot be read. An endless stream that fails is tried again by `read`.
            EdgeError: if the stream's configuration or a missing library leaves nothing to try.
        """
        self._report(StreamState.CONNECTING, "opening")
        self._connect()

    def read(self, timeout_s: float) -> Frame | None:
        """Return the next frame, or None while there is none, for example because the camera is away.

        Raises:
            EndOfStream: after the last frame of a file.
            SourceError: if a file cannot be read, or after `close`.
        """
        deadline = self._clock() + timeout_s
        while True:
            if self._closing.is_set():
                raise SourceError(f"{self._stream}: read from a closed stream")
            frame = self._step(max(0.0, deadline - self._clock()))
            if frame is not None or self._clock() >= deadline or self._closing.is_set():
                return frame

    def counts(self) -> SourceCounts:
        """Return the sum over all connections; final once closed."""
        with self._lock:
            return self._past if self._source is None else add_counts(self._past, self._source.counts())

    def close(self) -> None:
        """Stop; wakes a `read` that waits in another thread, also out of a backoff."""
        self._closing.set()
        with self._lock:
            self._stop_watch()
            self._drop_source()
            self._phase = CameraPhase.CLOSED

    def _step(self, left_s: float) -> Frame | None:
        """Do what the phase asks for, for at most `left_s`."""
        if self._phase is CameraPhase.BACKOFF:
            self._closing.wait(min(left_s, WATCH_S) if self._watch else min(left_s, self.due_in_s))
            if self._is_due() and not self._closing.is_set():
                self._reconnects += 1
                self._connect()
            return None
        source = self._source
        if source is None:
            raise SourceError(f"{self._stream}: is not open")
        begun = self._clock()
        try:
            frame = source.read(min(left_s, self._left_s()))
        except EdgeError as error:
            self._fail(error)
            return None
        if frame is not None:
            return self._accept(frame)
        self._silent_s += self._clock() - begun
        if self._left_s() <= 0.0 and not self._is_moving_on(source):
            problem = f"no frame for {self._patience_s():g} s"
            self._fail(SourceError(problem, is_permanent=not self._is_endless))
        return None

    def _is_due(self) -> bool:
        """Whether to connect again now."""
        watch = self._watch
        if watch is None:
            return self._clock() >= self._due
        return watch.has_returned or (self._clock() >= self._due and not watch.is_away)

    def _stop_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()

    def _left_s(self) -> float:
        """How long a source may go on to give no frame."""
        if self._is_endless:
            return self.due_in_s
        # Of a file only the time counts in which it was read, and one that is paced may hold still later on.
        is_paced = self._is_live and self._phase is CameraPhase.STREAMING
        return math.inf if is_paced else FILE_SILENCE_S - self._silent_s

    def _is_moving_on(self, source: FrameSource) -> bool:
        """Whether a stream that gives no frame is being decoded all the same.

        A camera may have its key frames far apart: opened anew, it would be joined between two of them again.
        """
        decoded = source.counts().decoded
        if decoded <= self._decoded_in_silence or (self._is_endless and self._silent_s >= KEY_FRAME_S):
            return False
        self._decoded_in_silence = decoded
        if self._is_endless:
            _log.info("frames are decoded, none is clean yet stream=%s silent_s=%.1f", self._stream, self._silent_s)
            self._due = self._clock() + self._patience_s()
        else:
            self._silent_s = 0.0
        return True

    def _connect(self) -> None:
        self._phase = CameraPhase.CONNECTING
        self._stop_watch()
        self._silent_s, self._decoded_in_silence = 0.0, 0
        self._due = self._clock() + self._first_frame_s
        source = self._make_source()
        with self._lock:
            if self._closing.is_set():
                return
            self._source = source
        try:
            source.open()
        except SourceError as error:
            self._fail(error)

    def _accept(self, frame: Frame) -> Frame:
        """Number and time a frame as one stream, over all connections."""
        now = self._clock()
        if self._phase is CameraPhase.CONNECTING:
            self._phase = CameraPhase.STREAMING
            self._streaming_since = now
            if self._last is not None:
                pause_ns = frame.header.read_at_ns - self._last.read_at_ns
                self._shift_ns = self._last.pts_ns + pause_ns - frame.header.pts_ns
            self._report(StreamState.UP, "frames arrive")
        self._due = now + self._stall_s
        self._silent_s = 0.0
        if self._is_endless:
            self._decoded_in_silence = frame.header.frame + INSIDE
        if self._past.decoded or self._shift_ns:
            number, pts_ns = frame.header.frame + self._past.decoded, frame.header.pts_ns + self._shift_ns
            frame = replace(frame, header=replace(frame.header, frame=number, pts_ns=pts_ns))
        self._last = frame.header
        return frame

    def _fail(self, error: EdgeError) -> None:
        """End the connection; wait for the next one, or raise where there is none."""
        if self._closing.is_set():
            return
        streamed_s = self._clock() - self._streaming_since if self._phase is CameraPhase.STREAMING else 0.0
        with self._lock:
            self._drop_source()
        if not self._is_endless:
            self._phase = CameraPhase.ENDED
            is_end = isinstance(error, EndOfStream)
            self._report(StreamState.ENDED if is_end else StreamState.DOWN, error.problem)
            raise error
        is_refused = not isinstance(error, SourceError) or error.is_permanent
        self._due = self._clock() + self._backoff.delay_s(streamed_s=streamed_s, is_refused=is_refused)
        self._phase = CameraPhase.BACKOFF
        with self._lock:
            if self._begin_watch is not None and not self._closing.is_set():
                self._watch = self._begin_watch(is_refused)
        self._report(StreamState.DOWN, error.problem, remedy=error.hint or self._remedy)

    def _drop_source(self) -> None:
        """Close the source in a helper thread: rtspsrc is known to hang now and then while it is stopped."""
        source, self._source = self._source, None
        if source is None:
            return
        self._phase = CameraPhase.TEARDOWN
        helper = threading.Thread(target=source.close, name=f"teardown {self._stream}", daemon=True)
        helper.start()
        if not join_or_remember(helper, TEARDOWN_S):
            self.is_stuck = True
            _log.error("teardown hangs stream=%s after_s=%g; the process should be restarted", self._stream, TEARDOWN_S)
        self._past = add_counts(self._past, source.counts())

    def _patience_s(self) -> float:
        if not self._is_endless:
            return FILE_SILENCE_S
        return self._stall_s if self._phase is CameraPhase.STREAMING else self._first_frame_s

    def _report(self, state: StreamState, reason: str, *, remedy: str = "") -> None:
        before = self._status
        if before is not None and (before.state, before.reason) == (state, reason):
            return
        self._status = StreamStatus(stream=self._stream, state=state, reason=reason, reconnects=self._reconnects)
        # A camera that is lost, and one that is back, is what the journal is read for; a start is not.
        is_news = bool(remedy) or (before is not None and before.state is StreamState.DOWN)
        words = reason.removeprefix(f"{self._address}: ") + (f"; {remedy}" if remedy else "")
        _log.log(
            logging.WARNING if is_news else logging.INFO,
            "stream %s stream=%s address=%s reconnects=%d reason=%s",
            *(state.value, self._stream, self._address, self._reconnects, words),
        )
        if self._on_status is not None:
            self._on_status(self._status)
