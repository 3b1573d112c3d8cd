"""A stream read through GStreamer: one pipeline, pulled by the thread that calls `read`."""

from __future__ import annotations

import threading
import time

from edge.config.schema import StreamConfig
from edge.errors import EdgeError, SourceError
from edge.media.address import Address
from edge.media.connection import Connection
from edge.media.flood import endless_error
from edge.media.gstreamer.binding import load
from edge.media.gstreamer.build import PipelineBuilder
from edge.media.gstreamer.bus import BusReader
from edge.media.gstreamer.clean import Backlog, GstLimit
from edge.media.gstreamer.native import NO_TIME, Counter, HeldCaps, PixelLayout, RunningClock, Sample, Sink
from edge.media.gstreamer.tail import BufferGate, GstLoop
from edge.media.rate import Cap, StreamTime
from edge.media.tunnel import Tunnel
from edge.types import ClockSource, DropReason, Frame, FrameHeader, Preprocess, SourceCounts

__all__ = ["GstSource"]

_BETWEEN = 4  # frames at most: in the queue, in the scaler, in the sink, and one that the decoder is handing over
_IDLE_LOOKS = 10  # in a row: between two stages of finding out what a file is, nothing runs for a moment either
_SLICE_NS = 100_000_000  # how long an error may wait for its answer; an end and a close end the wait by themselves
_LISTEN_EVERY_NS = 500_000_000  # what the bus says while frames come


class GstSource(Connection):
    """Implements `edge.protocols.FrameSource` for every scheme that GStreamer reads.

    A read that is interrupted by `close` returns None; the next one raises `SourceError`. The image of a frame stays
    readable even after that, because the view holds its buffer; it is still only meant for the time until the next
    call, since live decoders have few buffers.
    """

    def __init__(
        self,
        stream: StreamConfig,
        address: Address,
        *,
        preprocess: Preprocess,
        is_nvmm: bool,
        cap: Cap | None = None,
    ) -> None:
        builder = self._builder = PipelineBuilder(stream, address, is_nvmm=is_nvmm)
        super().__init__(stream, address, effort=builder.effort, packets=builder.packet_number)
        self._clock_kind = ClockSource.FILE if address.is_file_like else ClockSource.ARRIVAL
        self.pipeline = builder.pipeline
        self._sink = Sink(self.pipeline.get_by_name("sink"))
        self._counter = Counter(self.pipeline.get_by_name("decoded"))
        self._clock = RunningClock(self.pipeline)
        self._backlog: Backlog | None = None  # of an RTSP camera, once it is known what it sends
        self._wanted_cap = cap or Cap()
        most_fps = None if address.is_file_like else _seen_by_watchdog(stream)
        self._limit = GstLimit(self.pipeline.get_by_name("decoded"), most_fps)
        self._gate = BufferGate(self.pipeline, preprocess, container_colour=lambda: builder.container_colour)
        self._bus = BusReader(self.pipeline.get_bus(), address, is_live=not address.is_file_like)
        self._loop = GstLoop(self.pipeline, address.shown) if stream.loop and address.is_file_like else None
        self._lock = threading.Lock()
        self._taken = self._corrupt = self._damaged = self._late = 0
        self._listened_at_ns = 0
        self._looked_at_ns = 0
        self._decoded_before = 0
        self._idle_looks = 0
        self._last_number = 0
        self._caps: HeldCaps | None = None
        self._first_pts: int | None = None
        self._time = StreamTime()

    @property
    def codec(self) -> str | None:
        """Such as `h264`; None before that is known."""
        return self._builder.codec

    def open(self) -> None:
        """`read` raises the pipeline's later errors. Raises `SourceError` if it refuses to start."""
        gst = load().gst
        self._require_file()
        with self._lock:
            if self._closing.is_set():
                raise SourceError(f"{self.stream}: open of a closed source")
            if self._address.is_encrypted:
                self._tunnel = Tunnel(self._address)
                self._builder.lead_to(self._tunnel.address)
            result = self.pipeline.set_state(gst.State.PLAYING)
        if result == gst.StateChangeReturn.FAILURE:
            self._check_bus(time.monotonic_ns())
            raise self._bus.problem or SourceError(f"{self._address.shown}: the pipeline does not start")

    def read(self, timeout_s: float) -> Frame | None:
        """`SourceError` of a broken stream comes after the frames before the break."""
        now_ns = time.monotonic_ns()
        deadline_ns = now_ns + int(timeout_s * 1e9)
        while True:
            if self._closing.is_set():
                raise SourceError(f"{self.stream}: read from a closed source")
            if now_ns - self._listened_at_ns >= _LISTEN_EVERY_NS:
                self._check_bus(now_ns)
            if self._wanted_cap.max_fps != self._limit.cap_fps and self.is_live:
                self._limit.set(self._wanted_cap.max_fps)
            sample = self._sink.pull(min(max(0, deadline_ns - now_ns), _SLICE_NS))
            now_ns = time.monotonic_ns()
            if sample is not None:
                self._taken += 1
                if self._is_clean(sample):
                    return self._frame_of(sample, now_ns)
                self._damaged += 1
                self._number()
                if now_ns < deadline_ns:
                    continue
                return None
            if self._closing.is_set():
                return None
            self._check_bus(now_ns)
            self._check_effort()
            self._raise_end(now_ns)
            if now_ns >= deadline_ns:
                return None

    def counts(self) -> SourceCounts:
        # In this order, since frames go on meanwhile: none may be seen behind a place and not yet in front of it.
        clean, damaged, late, taken = self._builder.clean, self._damaged, self._late, self._taken
        limited, decoded = dict(self._limit.dropped), self._counter.count()
        dropped = limited | {
            DropReason.DAMAGED: damaged,
            DropReason.LATE: late,
            DropReason.STOPPED: decoded - taken - sum(limited.values()) - late if self._closing.is_set() else 0,
        }
        return SourceCounts(
            decoded=decoded,
            dropped={why: count for why, count in dropped.items() if count},
            skipped=self._backlog.skipped if self._backlog is not None else 0,
            errors=self._bus.warnings + self._corrupt + (clean.errors if clean is not None else 0),
        )

    def close(self) -> None:
        """Wakes a `read` that waits in another thread."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            self._builder.end_callbacks()
            with self._floods.ended(self._reached):  # the pipeline would wait for the end of what has none
                self.pipeline.set_state(load().gst.State.NULL)
            self._close_tunnel()
            self._floods.close()

    def _check_bus(self, now_ns: int) -> None:
        # Once more right after the first frame: what is said of a file as a whole came before it.
        self._listened_at_ns = now_ns if self._taken else 0
        self._bus.poll()
        self._take_turn(self._bus.turn_deg)
        not_reached = None if self._tunnel is None else self._tunnel.problem
        for problem in (self._gate.problem, self._builder.problem, not_reached):
            # The cause: what the bus says of the same failure, e.g. "not negotiated", only follows from it.
            self._bus.problem = problem or self._bus.problem
        if self._bus.problem is None and self._builder.is_empty:
            self._bus.problem = self._end_after(0)
        if self._bus.problem is not None and self._builder.has_only_other_media:
            self._bus.problem = self._builder.no_video_error()
        depay, sender = self._builder.depay, self._builder.sender_clock
        if sender is not None:
            sender.look(self._clock.at_ns)
        if self._backlog is None and depay is not None and sender is not None:
            self._backlog = Backlog(depay, sender, latency_ms=self._config.latency_ms, running_ns=self._clock.at_ns)
        if self._backlog is not None:
            self._backlog.look()

    def _check_effort(self) -> None:
        decoded = self._counter.count()
        if decoded != self._decoded_before:
            self._decoded_before = decoded
            self._effort.bears_fruit()
        elif not decoded and self._is_flooded():
            self._bus.problem = endless_error(self._address)

    def _raise_end(self, now_ns: int) -> None:
        """Called when no frame is waiting: only now is an end the end, because frames before it were to be read."""
        if isinstance(self._bus.problem, EdgeError):
            raise self._bus.problem
        if self._bus.problem is not None:
            raise SourceError(f"{self._address.shown}: {self._bus.problem!r}") from self._bus.problem
        if now_ns - self._looked_at_ns >= _SLICE_NS and self._address.scheme == "file":
            self._looked_at_ns = now_ns
            self._idle_looks = self._idle_looks + 1 if self._builder.has_given_up() else 0
            if self._idle_looks >= _IDLE_LOOKS:
                raise SourceError(f"{self._address.shown}: there is no playable video in it", is_permanent=True)
        if not self._bus.has_ended or not self._sink.is_at_end:
            return
        if self._loop is not None:
            self._bus.has_ended = False
            self._loop.restart(self._counter.count())
        else:
            raise self._end_after(self._counter.count())

    def _frame_of(self, sample: Sample, read_at_ns: int) -> Frame:
        wall_ns = time.time_ns()
        if self._caps is None or sample.caps_address != self._caps.address:
            self._take_caps(sample)
        pts_ns, age_ns = self._times(sample, read_at_ns)
        captured_at_ns, clock = self._captured(sample.pts, wall_ns - age_ns)
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
        return Frame(header=header, letterbox=self._letterbox, image=sample.view(self._layout), black=self._black)

    def _take_caps(self, sample: Sample) -> None:
        caps = load().gst.Caps.from_string(sample.caps_text())
        self._caps = HeldCaps(sample)
        self._letterbox = self._gate.letterbox_of(caps)
        self._layout = PixelLayout(load().video.VideoInfo.new_from_caps(caps))

    def _captured(self, pts: int, arrived_at_ns: int) -> tuple[int, ClockSource]:
        """Return when a frame was taken, as far as that is known, and by whose clock."""
        sender = self._builder.sender_clock
        by_sender_ns = None if sender is None else sender.captured_at_ns(pts, arrived_at_ns=arrived_at_ns)
        return (arrived_at_ns, self._clock_kind) if by_sender_ns is None else (by_sender_ns, ClockSource.RTCP_SR)

    def _is_clean(self, sample: Sample) -> bool:
        self._corrupt += self._is_after_damage(sample)
        clean = self._builder.clean
        if clean is None:
            return not sample.is_corrupted
        return clean.takes(sample.pts, is_marked=sample.is_corrupted)

    def _is_after_damage(self, sample: Sample) -> bool:
        """Decoders report unusable data by flags only: on the smeared frame, or on the first one after the damage."""
        if self._first_pts is None:
            self._first_pts = sample.pts
        # Live, a gap is a dropped frame; and every pass of a loop begins with one.
        is_gap = not self.is_live and sample.pts != self._first_pts and sample.is_discont
        return is_gap or sample.is_corrupted

    def _number(self) -> int:
        """Return the place of this frame among all that were decoded; exact as long as none is dropped.

        Live, the frames between the counter and the sink are only known within bounds: the least that is possible is
        taken, so that a number is never ahead of the decoder.
        """
        decoded = self._counter.count()
        least = decoded - _BETWEEN if self.is_live else self._taken
        self._last_number = max(least, self._last_number + 1)
        if self.is_live:
            # Of the frames behind the limit that were not taken, all but those that may still be on their way.
            let_on = decoded - sum(self._limit.dropped.values())
            self._late = max(self._late, let_on - _BETWEEN - self._taken)
        return self._last_number

    def _times(self, sample: Sample, read_at_ns: int) -> tuple[int, int]:
        """Return the frame's running time, later than the one before, and, of live frames, how long ago it came.

        A web camera that sends two pictures in a packet leaves the second one without a time: it gets that of now.
        """
        pts_ns = NO_TIME if sample.pts == NO_TIME else sample.running_time_ns()
        if not self.is_live and pts_ns != NO_TIME:
            return pts_ns, 0
        running_ns = self._clock.at_ns(read_at_ns) or 0
        own_ns = running_ns if pts_ns == NO_TIME else pts_ns
        pts_ns, is_own = self._time.of(own_ns, arrived_ns=running_ns)
        if not is_own or self._builder.has_own_times:
            return pts_ns, 0
        sender = self._builder.sender_clock
        return pts_ns, max(0, running_ns - own_ns - (0 if sender is None else sender.lag_ns))


def _seen_by_watchdog(stream: StreamConfig) -> float | None:
    """Return the rate that a camera is limited to here, never so few that its frames look like a stall."""
    return None if stream.max_fps is None else max(stream.max_fps, 3 / stream.stall_s)
