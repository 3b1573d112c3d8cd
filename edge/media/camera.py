"""The life of one stream: connect, watch, take down, wait, connect again; with a new source every time.

    CONNECTING -> STREAMING -> BACKOFF -> CONNECTING ...

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

from edge.errors import EdgeError, EndOfPicture, EndOfStream, SourceError
from edge.media.connection import Connection
from edge.media.probe import CameraBackoff, ProbeWatch
from edge.media.rate import RateLimit
from edge.media.threads import close_beside, stuck_streams
from edge.protocols import FrameSource
from edge.types import DropReason, Frame, FrameHeader, SourceCounts, StreamId, StreamState

__all__ = ["Camera", "CameraPhase", "StreamStatus"]

_log = logging.getLogger(__name__)

FIRST_FRAME_S = 8.0
FILE_SILENCE_S = 10.0
KEY_FRAME_S = 30.0  # of frames that are decoded and not clean; then a new connection may bring a key frame
WATCH_S = 0.1  # how often a wait looks whether the camera has returned
PAUSE_S = 0.25  # a wait that takes longer than asked for by so much says that this process stood still, not the camera
INSIDE = 8  # frames at most that a source has decoded and not given out yet
TEARDOWN_S = 5.0
MOST_STUCK = 2  # connections of a camera that do not end: each keeps its threads and memory, and the camera's session
_LEFT_OUT = f"{MOST_STUCK} of its connections do not end: it is left out until one has ended"
_RESTART = "restart the service when that suits the other cameras"


class CameraPhase(enum.Enum):
    """Where in its life a camera is that is neither closed nor ended."""

    CONNECTING = "connecting"
    STREAMING = "streaming"
    BACKOFF = "backoff"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """Reported state of a stream; `reason` holds no credential."""

    stream: StreamId
    state: StreamState
    reason: str
    reconnects: int


class Camera:
    """A `FrameSource` made of many: whatever happens to a live stream, its reader only sees a pause.

    Args:
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
        max_fps: frames above it are dropped, and counted as `MAX_FPS`; also how often one is asked that gives one
            picture for each request, else once a second.
        address: what is logged of where it is; without secrets.
        remedy: what is logged of what to do when it is lost and the error does not tell.

    `reconnects`: connections that were begun after the first one.
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
        max_fps: float | None = None,
        address: str = "",
        remedy: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stream = stream
        self._make_source = make_source
        self.is_live = is_live
        self._is_endless = is_endless
        self._stall_s = stall_s
        self._first_frame_s = max(first_frame_s, stall_s)
        self._backoff = backoff or CameraBackoff()
        self._begin_watch = watch
        self._watch: ProbeWatch | None = None
        self._on_status = on_status
        self._limit = None if max_fps is None else RateLimit(max_fps)
        self._by_rate = 0
        self._period_s = 1.0 if max_fps is None else 1.0 / max_fps
        self._address = address
        self._remedy = remedy
        self._clock = clock
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._source: FrameSource | None = None
        self._past = SourceCounts()
        self.phase = CameraPhase.CONNECTING
        self._status: StreamStatus | None = None
        self._due = 0.0
        self._streaming_since = 0.0
        self._silent_s = 0.0
        self._left_off = 0.0
        self._is_polled = self._has_streamed = False
        self._decoded_in_silence = 0
        self.reconnects = 0
        self._last: FrameHeader | None = None
        self._shift_ns = 0

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
    def is_left_out(self) -> bool:
        """Whether it is not connected to any more, because too many of its connections have not ended yet."""
        return stuck_streams().count(self.stream) >= MOST_STUCK

    def open(self) -> None:
        """Begin the first connection. Raises `SourceError` if a file cannot be read. An endless stream that fails is
        tried again by `read`; `EdgeError` if the stream's configuration or a missing library leaves nothing to try.
        """
        self._report(StreamState.CONNECTING, "opening")
        self._connect()

    def read(self, timeout_s: float) -> Frame | None:
        """None also while the camera is away. Raises `SourceError` if a file cannot be read, or after `close`."""
        deadline = self._clock() + timeout_s
        while True:
            if self._closing.is_set():
                raise SourceError(f"{self.stream}: read from a closed stream")
            frame = self._limited(self._step(max(0.0, deadline - self._clock())))
            if frame is not None or self._clock() >= deadline or self._closing.is_set():
                return frame

    def counts(self) -> SourceCounts:
        """The sum over all connections, and what the limit drops; final once closed."""
        by_rate = {DropReason.MAX_FPS: self._by_rate} if self._by_rate else {}  # before: it has come out of a source
        with self._lock:
            found = self._past if self._source is None else self._past + self._source.counts()
        return found + SourceCounts(dropped=by_rate)

    def close(self) -> None:
        """Wakes a `read` that waits in another thread, also out of a backoff."""
        self._closing.set()
        with self._lock:
            self._stop_watch()
            self._drop_source()

    def _limited(self, frame: Frame | None) -> Frame | None:
        if frame is None or self._limit is None or self._limit.admits(frame.header.pts_ns):
            return frame
        self._by_rate += 1
        return None

    def _step(self, left_s: float) -> Frame | None:
        if self.phase is CameraPhase.BACKOFF:
            if is_left_out := self.is_left_out:
                self._report(StreamState.DOWN, _LEFT_OUT, remedy=_RESTART)
            elif not self._has_streamed and self._watch is not None and (why := self._watch.problem) is not None:
                self._report(StreamState.DOWN, why.problem, is_refined=True)
            self._closing.wait(min(left_s, WATCH_S if self._watch or is_left_out else self.due_in_s))
            if not is_left_out and self._is_due() and not self._closing.is_set():
                self.reconnects += not self._is_polled
                self._connect()
            return None
        source = self._source
        if source is None:
            raise SourceError(f"{self.stream}: is not open")
        asked_s = min(left_s, self._left_s())
        try:
            frame = source.read(asked_s)
        except EndOfPicture:
            self._await_next_picture()
            return None
        except EdgeError as error:
            self._fail(error)
            return None
        if frame is not None:
            return self._accept(frame)
        self._count_silence(asked_s)
        if self._left_s() <= 0.0 and not self._is_moving_on(source):
            problem = f"no frame for {self._patience_s():g} s"
            self._fail(SourceError(problem, hint=self._hint_of_silence(source), is_permanent=not self._is_endless))
        return None

    def _hint_of_silence(self, source: FrameSource) -> str | None:
        """Where frames were so far apart that the next one may be on its way; None: the usual."""
        streamed_s = self._clock() - self._streaming_since
        is_slow = self.phase is CameraPhase.STREAMING and source.counts().decoded * self._stall_s <= 2 * streamed_s
        if not (self._is_endless and is_slow):
            return None
        slow = f"where its frames are further apart than stall_s ({self._stall_s:g} s), raise that for this stream"
        return f"{slow}; else {self._remedy}" if self._remedy else slow

    def _count_silence(self, asked_s: float) -> None:
        """Record a wait without a frame; that which this process itself stood still for is not the camera's."""
        now = self._clock()
        took_s, self._left_off = now - self._left_off, now
        paused_s = took_s - asked_s
        if paused_s > PAUSE_S:
            self._due += paused_s
            took_s = asked_s
        self._silent_s += took_s

    def _is_due(self) -> bool:
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
        is_paced = self.is_live and self.phase is CameraPhase.STREAMING
        return math.inf if is_paced else FILE_SILENCE_S - self._silent_s

    def _is_moving_on(self, source: FrameSource) -> bool:
        """Whether a stream that gives no frame is being decoded all the same.

        A camera may have its key frames far apart: opened anew, it would be joined between two of them again.
        """
        counts = source.counts()
        decoded = counts.decoded + counts.skipped
        if decoded <= self._decoded_in_silence or (self._is_endless and self._silent_s >= KEY_FRAME_S):
            return False
        self._decoded_in_silence = decoded
        if self._is_endless:
            _log.info("frames are decoded, none is clean yet stream=%s silent_s=%.1f", self.stream, self._silent_s)
            self._due = self._clock() + self._patience_s()
        else:
            self._silent_s = 0.0
        return True

    def _connect(self) -> None:
        self.phase, self._is_polled = CameraPhase.CONNECTING, False
        self._stop_watch()
        self._silent_s, self._decoded_in_silence = 0.0, 0
        source = self._make_source()
        self._left_off = self._clock()
        self._due = self._left_off + self._first_frame_s
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
        if self.phase is CameraPhase.CONNECTING:
            self.phase = CameraPhase.STREAMING
            self._streaming_since = now
            if self._last is not None:
                pause_ns = frame.header.read_at_ns - self._last.read_at_ns
                self._shift_ns = self._last.pts_ns + pause_ns - frame.header.pts_ns
            self._report(StreamState.UP, "frames arrive")
        self._due = now + self._stall_s
        self._left_off = now
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
        self._has_streamed = self.phase is CameraPhase.STREAMING
        streamed_s = self._clock() - self._streaming_since if self._has_streamed else 0.0
        cost_s = self._source.fruitless_s if isinstance(self._source, Connection) else 0.0
        with self._lock:
            self._drop_source()
        if not self._is_endless:
            is_end = isinstance(error, EndOfStream)
            self._report(StreamState.ENDED if is_end else StreamState.DOWN, error.problem)
            raise error
        is_refused = not isinstance(error, SourceError) or error.is_permanent
        wait_s = self._backoff.delay_s(streamed_s=streamed_s, is_refused=is_refused, cost_s=cost_s)
        self._due = self._clock() + wait_s
        self.phase = CameraPhase.BACKOFF
        with self._lock:
            if self._begin_watch is not None and not self._closing.is_set():
                self._watch = self._begin_watch(is_refused)
            watch = self._watch
        # A decoder does not tell why it reaches nothing.
        why = watch.first_problem() if watch is not None and not self._has_streamed else None
        error = why or error
        self._report(StreamState.DOWN, error.problem, remedy=error.hint or self._remedy)

    def _await_next_picture(self) -> None:
        """A camera that gives one picture for each request is up all the time; it is asked again and again."""
        with self._lock:
            self._drop_source()
        self._is_polled = True
        self._due = max(self._streaming_since + self._period_s, self._clock())
        self.phase = CameraPhase.BACKOFF

    def _drop_source(self) -> None:
        source, self._source = self._source, None
        if source is None:
            return
        if not close_beside(source, TEARDOWN_S):
            _log.error("stream teardown hangs stream=%s after_s=%g", self.stream, TEARDOWN_S)
        self._past += source.counts()

    def _patience_s(self) -> float:
        if not self._is_endless:
            return FILE_SILENCE_S
        return self._stall_s if self.phase is CameraPhase.STREAMING else self._first_frame_s

    def _report(self, state: StreamState, reason: str, *, remedy: str = "", is_refined: bool = False) -> None:
        """`is_refined`: only the reason of what was reported is known better now, which the journal need not repeat."""
        before = self._status
        if before is not None and (before.state, before.reason) == (state, reason):
            return
        self._status = StreamStatus(stream=self.stream, state=state, reason=reason, reconnects=self.reconnects)
        # A camera that is lost, and one that is back, is what the journal is read for; a start is not.
        is_news = bool(remedy) or (before is not None and before.state is StreamState.DOWN and not is_refined)
        words = reason.removeprefix(f"{self._address}: ") + (f"; {remedy}" if remedy else "")
        _log.log(
            logging.WARNING if is_news else logging.INFO,
            "stream %s stream=%s address=%s reconnects=%d reason=%s",
            *(state.value, self.stream, self._address, self.reconnects, words),
        )
        if self._on_status is not None:
            self._on_status(self._status)
