"""A stream read through GStreamer: one pipeline, pulled by the thread that calls `read`."""

from __future__ import annotations

import threading
import time
from typing import Any

from edge.config.schema import StreamConfig
from edge.errors import EdgeError, EndOfStream, SourceError
from edge.media.address import Address
from edge.media.gstreamer.binding import load
from edge.media.gstreamer.build import PipelineBuilder, is_live
from edge.media.gstreamer.bus import BusReader
from edge.media.gstreamer.gate import Gate
from edge.media.gstreamer.image import view_pixels
from edge.media.gstreamer.loop import GstLoop
from edge.types import ClockSource, DropReason, Frame, FrameHeader, Preprocess, SourceCounts, StreamId

__all__ = ["GstSource"]

_BETWEEN = 4  # frames at most: in the queue, in the scaler, in the sink, and one that the decoder is handing over
_IDLE_SLICES = 10  # looking at every pad of a pipeline takes milliseconds: not each time
_IDLE_LOOKS = 10  # in a row: between two stages of finding out what a file is, nothing runs for a moment either
_SLICE_NS = 10_000_000  # how long an end of a loop's pass, an error or a close may wait for its answer


class GstSource:
    """Implements `edge.protocols.FrameSource` for every scheme that GStreamer reads.

    A read that is interrupted by `close` returns None; the next one raises `SourceError`. The image of a frame stays
    readable even after that, because the view holds its buffer; it is still only meant for the time until the next
    call, since live decoders have few buffers.
    """

    def __init__(self, stream: StreamConfig, address: Address, *, preprocess: Preprocess, is_nvmm: bool) -> None:
        self._config = stream
        self._address = address
        self._is_live = is_live(stream, address)
        self._clock_kind = ClockSource.FILE if address.is_file_like else ClockSource.ARRIVAL
        builder = self._builder = PipelineBuilder(stream, address, is_nvmm=is_nvmm)
        self._pipeline = self._builder.pipeline
        self._sink = self._pipeline.get_by_name("sink")
        self._counter = self._pipeline.get_by_name("decoded")
        self._kept = self._pipeline.get_by_name("kept")
        self._gate = Gate(self._pipeline, preprocess, container_colour=lambda: builder.container_colour)
        self._bus = BusReader(self._pipeline.get_bus(), address, is_live=not address.is_file_like)
        self._loop = GstLoop(self._pipeline, address.shown) if stream.loop and address.is_file_like else None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._taken = 0
        self._corrupt = 0
        self._damaged = 0
        self._quiet_slices = 0
        self._idle_looks = 0
        self._last_number = 0
        self._caps: Any = None
        self._first_pts: int | None = None

    @property
    def pipeline(self) -> Any:
        """The `Gst.Pipeline`, to be looked at by diagnostics and tests."""
        return self._pipeline

    @property
    def stream(self) -> StreamId:
        """The stream that this source reads."""
        return StreamId(self._config.id)

    @property
    def is_live(self) -> bool:
        """Whether frames come at their own pace, so that the newest one wins."""
        return self._is_live

    def open(self) -> None:
        """Start the pipeline; what it finds out later is raised by `read`.

        Raises:
            SourceError: if the device or the elements refuse at once.
        """
        gst = load().gst
        if self._address.is_missing:
            raise SourceError(f"{self._address.shown}: there is no such file", is_permanent=True)
        if self._loop is not None:
            self._loop.start()
        if self._pipeline.set_state(gst.State.PLAYING) == gst.StateChangeReturn.FAILURE:
            self._check_bus()
            raise self._bus.problem or SourceError(f"{self._address.shown}: the pipeline does not start")

    def read(self, timeout_s: float) -> Frame | None:
        """Return the next frame, or None when none came in time or the source was closed meanwhile.

        Raises:
            EndOfStream: after the last frame of a file.
            SourceError: when the stream broke, after the frames before the break.
        """
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        while True:
            if self._closing.is_set():
                raise SourceError(f"{self.stream}: read from a closed source")
            self._check_bus()
            left_ns = max(0, deadline_ns - time.monotonic_ns())
            sample = self._sink.try_pull_sample(min(left_ns, _SLICE_NS))
            if sample is not None:
                self._taken += 1
                if self._is_clean(sample.get_buffer()):
                    return self._frame_of(sample)
                self._damaged += 1
                self._number()
                if time.monotonic_ns() < deadline_ns:
                    continue
                return None
            if self._closing.is_set():
                return None
            self._raise_end()
            if time.monotonic_ns() >= deadline_ns:
                return None

    def counts(self) -> SourceCounts:
        """Return what was decoded and dropped so far; final once closed."""
        decoded, clean = self._decoded(), self._builder.clean
        by_rate = decoded - _passed(self._kept) if self._kept is not None else 0
        # Of the frames that were not taken, those are late whose successors were; the others are still on their way.
        late = max(0, self._last_number - self._taken - by_rate)
        inside = decoded - self._taken - by_rate - late
        dropped = {
            DropReason.MAX_FPS: by_rate,
            DropReason.DAMAGED: self._damaged,
            DropReason.LATE: late,
            DropReason.STOPPED: inside if self._closing.is_set() else 0,
        }
        return SourceCounts(
            decoded=decoded,
            dropped={why: count for why, count in dropped.items() if count},
            errors=self._bus.warnings + self._corrupt + (clean.errors if clean is not None else 0),
        )

    def close(self) -> None:
        """Stop the pipeline; wakes a `read` that waits in another thread."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            self._pipeline.set_state(load().gst.State.NULL)
            for part in (self._builder, self._gate, self._loop):
                if part is not None:
                    part.disconnect()

    def _check_bus(self) -> None:
        self._bus.poll()
        for problem in (self._gate.problem, self._builder.problem):
            # The cause: what the bus says of the same failure, e.g. "not negotiated", only follows from it.
            self._bus.problem = problem or self._bus.problem
        if self._bus.problem is not None and self._builder.has_only_other_media:
            self._bus.problem = self._builder.no_video_error()
        if self._loop is not None and self._loop.has_pass_ended:
            self._loop.begin_next_pass()

    def _raise_end(self) -> None:
        """Called when no frame is waiting: only now is an end the end, because frames before it were to be read."""
        if isinstance(self._bus.problem, EdgeError):
            raise self._bus.problem
        if self._bus.problem is not None:
            raise SourceError(f"{self._address.shown}: {self._bus.problem!r}") from self._bus.problem
        self._quiet_slices += 1
        if self._quiet_slices % _IDLE_SLICES == 0 and self._address.scheme == "file":
            self._idle_looks = self._idle_looks + 1 if self._builder.has_given_up() else 0
            if self._idle_looks >= _IDLE_LOOKS:
                raise SourceError(f"{self._address.shown}: there is no playable video in it", is_permanent=True)
        if not self._bus.has_ended or not self._sink.get_property("eos"):
            return
        if self._loop is not None:
            self._bus.has_ended = False
            self._loop.restart()
        elif self._address.is_file_like:
            self._raise_empty_or_end()
        else:
            raise SourceError(f"{self._address.shown}: the camera ended the stream")

    def _raise_empty_or_end(self) -> None:
        if self._decoded() == 0:
            raise SourceError(f"{self._address.shown}: no frame could be decoded", is_permanent=True)
        raise EndOfStream(f"{self._address.shown}: end of file")

    def _decoded(self) -> int:
        return _passed(self._counter) - (self._loop.discarded if self._loop is not None else 0)

    def _frame_of(self, sample: Any) -> Frame:
        read_at_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        caps, buffer = sample.get_caps(), sample.get_buffer()
        if self._caps is None or not caps.is_equal(self._caps):
            self._caps = caps
            self._letterbox = self._gate.letterbox_of(caps)
            self._info = load().video.VideoInfo.new_from_caps(caps)
        pts_ns, age_ns = self._times(sample, buffer, read_at_ns)
        captured_at_ns, clock = self._captured(buffer.pts, wall_ns - age_ns)
        header = FrameHeader(
            stream=self.stream,
            frame=self._number(),
            pts_ns=pts_ns,
            captured_at_ns=captured_at_ns,
            clock=clock,
            source_size=self._letterbox.source,
            read_at_ns=read_at_ns,
            decode_ns=age_ns,
        )
        return Frame(header=header, letterbox=self._letterbox, image=view_pixels(buffer, self._info))

    def _captured(self, pts: int, arrived_at_ns: int) -> tuple[int, ClockSource]:
        """Return when a frame was taken, as far as that is known, and by whose clock."""
        sender = self._builder.sender_clock
        by_sender_ns = None if sender is None else sender.captured_at_ns(pts, arrived_at_ns=arrived_at_ns)
        return (arrived_at_ns, self._clock_kind) if by_sender_ns is None else (by_sender_ns, ClockSource.RTCP_SR)

    def _is_clean(self, buffer: Any) -> bool:
        self._corrupt += self._is_after_damage(buffer)
        is_marked = bool(buffer.has_flags(load().gst.BufferFlags.CORRUPTED))
        clean = self._builder.clean
        return not is_marked if clean is None else clean.takes(buffer.pts, is_marked=is_marked)

    def _is_after_damage(self, buffer: Any) -> bool:
        """Decoders report unusable data by flags only: on the smeared frame, or on the first one after the damage."""
        flags = load().gst.BufferFlags
        if self._first_pts is None:
            self._first_pts = buffer.pts
        # Live, a gap is a dropped frame; and every pass of a loop begins with one.
        is_gap = not self._is_live and buffer.pts != self._first_pts and buffer.has_flags(flags.DISCONT)
        return is_gap or bool(buffer.has_flags(flags.CORRUPTED))

    def _number(self) -> int:
        """Return the place of this frame among all that were decoded; exact as long as none is dropped.

        Live, the frames between the counter and the sink are only known within bounds: the least that is possible is
        taken, so that a number is never ahead of the decoder.
        """
        least = self._decoded() - _BETWEEN if self._is_live else self._taken
        self._last_number = max(least, self._last_number + 1)
        return self._last_number

    def _times(self, sample: Any, buffer: Any, read_at_ns: int) -> tuple[int, int]:
        """Return the frame's running time and, of live frames, how long ago that was."""
        gst = load().gst
        if buffer.pts == gst.CLOCK_TIME_NONE:
            return read_at_ns, 0
        pts_ns = int(sample.get_segment().to_running_time(gst.Format.TIME, buffer.pts))
        if pts_ns == gst.CLOCK_TIME_NONE or not self._is_live:
            return pts_ns, 0
        clock = self._pipeline.get_clock()
        age_ns = clock.get_time() - self._pipeline.get_base_time() - pts_ns if clock is not None else 0
        return pts_ns, max(0, age_ns)


def _passed(identity: Any) -> int:
    """Frames that went through an identity element; unlike most counts, it outlives the pipeline's stop."""
    count: int = identity.get_property("stats").get_value("num-buffers")
    return count
