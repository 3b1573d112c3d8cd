"""A stream read through PyAV, where GStreamer is not installed: one decoding thread, frames scaled by the reader."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from edge.config.schema import StreamConfig
from edge.errors import EdgeError, EndOfPicture, SourceError
from edge.media.address import Address
from edge.media.connection import Connection
from edge.media.ffmpeg.binding import Decoder, rgb_from_frame, turn_of
from edge.media.flood import endless_error
from edge.media.rate import Cap, RateLimit
from edge.media.threads import Effort, join_or_remember
from edge.media.tunnel import Tunnel
from edge.types import ClockSource, DropReason, Frame, FrameHeader, ImageSize, Preprocess, SourceCounts
from edge.vision import boxes

__all__ = ["PyavSource"]

_JOIN_S = 2.0
_LATE_NS = 1_000_000_000
_BACK_NS, _AHEAD_NS = 1_000_000_000, 10_000_000_000  # times that are further off have begun anew
_WAITING = 2  # frames that a file's decoder may be ahead of its reader


class PyavSource(Connection):
    """Implements `edge.protocols.FrameSource` for files, RTSP and HTTP.

    A read that is interrupted by `close` returns None; the next one raises `SourceError`. `close` waits for the
    decoding thread, but not for long: while a camera is opened it may only end at FFmpeg's own timeout.
    `codec` is such as `h264`, None before that is known.
    """

    def __init__(
        self, stream: StreamConfig, address: Address, *, preprocess: Preprocess, cap: Cap | None = None
    ) -> None:
        self._decoder: Decoder | None = None  # of which the number of packets is asked at once
        super().__init__(stream, address, effort=Effort(), packets=self._packet_count)
        self._preprocess = preprocess
        self._has_changed = threading.Condition()
        self._frames: deque[tuple[int, int, int, Any]] = deque()  # number, PTS, arrival, av.VideoFrame
        self._decoded = self._damaged = self._capped = self._late = self._taken = self._errors = 0
        self._cap = cap or Cap()
        self._limit: RateLimit | None = None
        self._limit_fps: float | None = None
        self._end: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"decode {stream.id}", daemon=True)
        self._started_ns: int | None = None
        self.codec: str | None = None

    def open(self) -> None:
        """`read` raises the decoding thread's errors. Raises `SourceError` if a file is not there."""
        self._require_file()
        with self._has_changed:
            if self._closing.is_set():
                raise SourceError(f"{self.stream}: open of a closed source")
            self._thread.start()

    def read(self, timeout_s: float) -> Frame | None:
        """`SourceError` of a broken stream comes after the frames before the break."""
        with self._has_changed:
            if self._closing.is_set():
                raise SourceError(f"{self.stream}: read from a closed source")
            self._has_changed.wait_for(lambda: self._frames or self._end or self._closing.is_set(), timeout_s)
            if self._closing.is_set():
                return None
            if not self._frames and self._end is not None:
                raise self._end
            waiting = self._frames.popleft() if self._frames else None
            self._taken += waiting is not None
            self._has_changed.notify_all()
        if waiting is not None:
            return self._frame_of(*waiting)
        if self._decoded == 0 and self._is_flooded():
            raise endless_error(self._address)
        return None

    def counts(self) -> SourceCounts:
        with self._has_changed:
            inside = self._decoded - self._taken - self._late - self._damaged - self._capped
            dropped = {
                DropReason.DAMAGED: self._damaged,
                DropReason.CAPPED: self._capped,
                DropReason.LATE: self._late,
                DropReason.STOPPED: inside if self._closing.is_set() else 0,
            }
            kept = {reason: count for reason, count in dropped.items() if count}
            return SourceCounts(decoded=self._decoded, dropped=kept, errors=self._errors)

    def close(self) -> None:
        """Wakes a `read` that waits in another thread."""
        with self._has_changed:
            self._closing.set()
            self._frames.clear()
            self._has_changed.notify_all()
        self._close_tunnel()
        if self._decoder is not None:
            self._decoder.end_read()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            with self._floods.ended(self._reached):
                join_or_remember(self._thread, _JOIN_S, self.stream)
        self._floods.close()

    def _run(self) -> None:
        """The decoding thread: whatever ends it, the reader gets to know."""
        self._effort.begin()
        try:
            self._decode_passes()
            end: Exception = self._end_after(self._decoded)
        except EdgeError as error:
            end = (self._tunnel and self._tunnel.problem) or error
            if self._decoded == 1 and not self._address.is_file_like:  # FFmpeg calls the end of an answer a failure
                ended = self._end_after(self._decoded)
                end = ended if isinstance(ended, EndOfPicture) else error
        except Exception as error:  # the border of a thread; the reader raises it
            end = SourceError(f"{self._address.shown}: {type(error).__name__} while decoding")
            end.__cause__ = error
        self._close_tunnel()
        self._effort.end()
        with self._has_changed:
            self._end = end
            self._has_changed.notify_all()

    def _packet_count(self) -> int:
        return 0 if self._decoder is None else self._decoder.packets

    def _open_tunnel(self) -> None:
        with self._has_changed:
            self._tunnel = self._tunnel or Tunnel(self._address)
            if self._closing.is_set():
                raise SourceError(f"{self.stream}: closed while it was opened")

    def _decode_passes(self) -> None:
        shift_ns, is_first = 0, True
        while is_first or (self._config.loop and self._address.is_file_like):
            is_first = False
            before = self._decoded
            end_ns = self._decode_pass(shift_ns)
            if self._closing.is_set():
                return
            if self._config.loop and self._decoded == before:
                raise SourceError(f"{self._address.shown}: cannot be looped: a whole pass over it gave no frame")
            shift_ns = end_ns

    def _decode_pass(self, shift_ns: int) -> int:
        """Decode from start to end; return the time at which a next pass would begin."""
        if self._address.is_encrypted:
            self._open_tunnel()
        decoder = self._decoder = Decoder(self._reached, stall_s=self._config.stall_s)
        self.codec = decoder.codec
        first_ns: int | None = None
        end_ns = shift_ns
        seen_errors = 0
        try:
            for frame in decoder.frames():
                if first_ns is None:
                    self._take_turn(turn_of(frame))
                time_ns = round(frame.time * 1e9) if frame.time is not None else end_ns - shift_ns
                off_ns = 0 if first_ns is None else shift_ns + time_ns - first_ns - end_ns
                if first_ns is None or off_ns < -_BACK_NS or (off_ns > _AHEAD_NS and decoder.is_bursty):
                    first_ns = shift_ns + time_ns - end_ns  # another beginning, as of a playlist
                pts_ns = max(end_ns - decoder.period_ns + 1, shift_ns + time_ns - first_ns)
                end_ns = pts_ns + decoder.period_ns
                self._effort.bears_fruit()
                self._errors += decoder.errors - seen_errors
                seen_errors = decoder.errors
                if not decoder.is_clean(frame):
                    with self._has_changed:
                        self._decoded += 1
                        self._damaged += 1
                elif not self._hand_over(pts_ns, None if decoder.is_bursty else decoder.arrived_ns(frame), frame):
                    break
        finally:
            decoder.close()
        return end_ns

    def _hand_over(self, pts_ns: int, arrived_ns: int | None, frame: Any) -> bool:
        """Give a frame to the reader, when it is due; return whether to go on. One of a burst arrives then."""
        with self._has_changed:
            if self._closing.is_set():
                return False
            self._decoded += 1
            if not self.is_live:
                self._has_changed.wait_for(lambda: self._closing.is_set() or len(self._frames) < _WAITING)
            elif self._address.is_file_like or arrived_ns is None:
                self._has_changed.wait_for(self._closing.is_set, self._seconds_until(pts_ns))
            if self._closing.is_set():
                return False
            if self.is_live and not self._admits(pts_ns):
                self._capped += 1
                return True
            if self.is_live:
                self._late += len(self._frames)
                self._frames.clear()
            self._frames.append((self._decoded, pts_ns, arrived_ns or time.monotonic_ns(), frame))
            self._has_changed.notify_all()
            return True

    def _admits(self, pts_ns: int) -> bool:
        most_fps = self._cap.max_fps
        if most_fps != self._limit_fps:
            self._limit_fps, self._limit = most_fps, None if most_fps is None else RateLimit(most_fps)
        return self._limit is None or self._limit.admits(pts_ns)

    def _seconds_until(self, pts_ns: int) -> float:
        now_ns = time.monotonic_ns()
        is_too_late = not self._address.is_file_like and now_ns - pts_ns - (self._started_ns or 0) > _LATE_NS
        if self._started_ns is None or is_too_late:  # what was late once would be late for ever
            self._started_ns = now_ns - pts_ns
        return max(0.0, (self._started_ns + pts_ns - now_ns) / 1e9)

    def _frame_of(self, number: int, pts_ns: int, arrived_ns: int, decoded: Any) -> Frame:
        read_at_ns = time.monotonic_ns()
        age_ns = 0 if self._address.is_file_like else read_at_ns - arrived_ns
        where = boxes.fit(ImageSize(width=decoded.width, height=decoded.height), self._preprocess)
        header = FrameHeader(
            stream=self.stream,
            frame=number,
            pts_ns=pts_ns,
            captured_at_ns=time.time_ns() - age_ns,
            clock=ClockSource.FILE if self._address.is_file_like else ClockSource.ARRIVAL,
            source_size=where.source,
            read_at_ns=read_at_ns,
            decode_ns=age_ns,
        )
        image = rgb_from_frame(decoded, where.fitted)
        return Frame(header=header, letterbox=where, image=image, black=self._black)
