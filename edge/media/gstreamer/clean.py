"""Tells clean frames from those that a decoder has made of data it did not have, or could not use.

Costs nothing per frame in the streaming threads: key frames are heard of on a branch that only they pass, lost packets
by the events that GStreamer makes of them, and errors inside a decoder by what libav says of them. A decoder works in
the thread that has brought it the key frame, so its words are those of that thread.

Between the depayloader and the decoder a loss travels with the pictures, as an event of ours in front of the first one
that may lack something, and another one in front of the first that lacks nothing: times do not tell them apart. Of a
camera whose times stand still several pictures have one time, and the parser gives them others.

What waits in front of a decoder that is slower than its camera is bounded: pictures are left out up to a key frame.
Packets that came over TCP are all there, and after a pause of the process a decoder catches up with them; what is not
fresh any more is dropped behind it. Only where it falls behind for good would they pile up, in the jitter buffer.

Frames above the limit of a camera, or its cap, are dropped behind the decoder, by time.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

from edge.media.gstreamer.binding import load, on_pad
from edge.media.gstreamer.bus import SenderClock
from edge.media.rate import RateLimit, StreamTime
from edge.types import DropReason

__all__ = ["LOSS", "WHOLE", "Backlog", "CleanFrames", "GstLimit", "tell"]

# Only what says that pixels are wrong: libav complains of odd metadata, too, which some cameras send with each frame.
_DAMAGE = re.compile(
    r"error while decoding MB|decode_slice_header error|^no frame|Missing reference picture|non-existing PPS"
    r"|Could not find ref|Error parsing NAL unit|First slice in a frame|Error constructing the frame RPS"
    r"|^concealing \d"  # what lacked of a picture, made up: no error where all that came could be decoded
)
_REMEMBERED = 8  # spans of damage; those before are older than any frame that is still on its way
_MARGIN_NS = 20_000_000  # the position is where the last frame should have ended: cameras do not keep to it
LOSS, WHOLE = "edge-loss", "edge-whole"  # the picture behind it may lack something; is the first that does not
_by_thread: weakref.WeakValueDictionary[int, CleanFrames] = weakref.WeakValueDictionary()
_listening = threading.Lock()


class CleanFrames:
    """Follows one decoder, from its first frame on; thread-safe.

    Args:
        decoder: the bin of the codec section. Without an element `keys` in it nothing is known of key frames, and only
            the decoder's own mark on a frame counts.
        has_marks: the decoder marks what it puts out until it has recovered from the start between two key frames.
            That is believed, because libav also recognises starts that no key frame announces.

    `errors`: how often a decoder could not use its data.
    """

    def __init__(self, decoder: Any, output: Any, *, has_marks: bool) -> None:
        self._gst = load().gst
        self._lock = threading.Lock()
        self._has_marks = has_marks
        self._is_starting = True
        self._first_key: int | None = None
        self._spans: deque[tuple[int, int | None]] = deque(maxlen=_REMEMBERED)  # PTS: damage, next clean key frame
        self._healed_after = -1  # PTS: a key frame that is not later is none for what was lost
        self._is_connecting = True  # the depayloader asks for a key frame at its first packet, too
        self._unsure_until: int | None = None  # PTS at the depayloader: the last picture that a loss may have been in
        self._is_loss_told = False
        self._is_whole = True  # what comes to the decoder lacks no packets; a key frame that does heals nothing
        self._end: int | None = None  # PTS of the last picture of the connection, which need not be whole
        self._watched: set[str] = set()  # what is watched after a loss only
        self._output = output.get_static_pad("src")
        self.errors = 0
        keys = decoder.get_by_name("keys")
        self._has_keys = keys is not None
        if keys is not None:
            kinds = self._gst.PadProbeType
            on_pad(keys.get_static_pad("src"), kinds.BUFFER, self._on_key)
            on_pad(decoder.get_by_name("coded").get_static_pad("sink"), kinds.EVENT_DOWNSTREAM, self._on_event)
            self._depay = decoder.get_by_name("depay")
            if self._depay is not None:
                packets = self._depay.get_static_pad("sink")
                on_pad(packets, kinds.EVENT_UPSTREAM, self._on_request)
                on_pad(packets, kinds.EVENT_DOWNSTREAM, self._on_end)
            with _listening:  # by all cameras at once: heard twice, each error would count twice
                _listen_to_libav()

    def takes(self, pts: int, *, is_marked: bool) -> bool:
        """Return whether the frame of this time is clean; by the reader, for each frame that it gets.

        Args:
            pts: of its buffer.
            is_marked: the decoder has marked it as corrupted.
        """
        with self._lock:
            if self._is_starting and not self._begins_with(pts, is_marked=is_marked):
                return False
            if is_marked:
                self._note(pts)
                return False
            if self._end is not None and pts >= self._end:
                return False
            return not any(damage <= pts and (key is None or pts < key) for damage, key in self._spans)

    def damaged(self) -> None:
        """Note damage: the picture being decoded is not whole, nor are those not put out yet."""
        since = self._end_of_output() - _MARGIN_NS
        with self._lock:
            self.errors += 1
            self._note(since)
            self._watch("frames", self._output, self._on_frame)

    def _end_of_output(self) -> int:
        """Return the PTS at which the last frame should end that was put out; 0 before the first one."""
        time = self._gst.Format.TIME
        is_known, position = self._output.query_position(time)
        event = self._output.get_sticky_event(self._gst.EventType.SEGMENT, 0)
        if not is_known or event is None:
            return 0
        return int(event.parse_segment().position_from_stream_time(time, position))

    def _begins_with(self, pts: int, *, is_marked: bool) -> bool:
        is_begun = self._has_marks or not self._has_keys or (self._first_key is not None and pts >= self._first_key)
        self._is_starting = is_marked or not is_begun
        return not self._is_starting

    def _note(self, pts: int) -> None:
        self._open(pts)
        self._healed_after = max(self._healed_after, pts)

    def _open(self, pts: int) -> None:
        # Without key frames it is not known what else is damaged.
        if self._has_keys:
            is_open = bool(self._spans) and self._spans[-1][1] is None
            since = min(pts, self._spans.pop()[0]) if is_open else pts
            self._spans.append((since, None))

    def _on_key(self, _pad: Any, info: Any) -> Any:
        pts = info.get_buffer().pts
        if pts == self._gst.CLOCK_TIME_NONE:  # in an elementary stream; its decoder gives the times
            pts = self._end_of_output()
        end = self._end_of_output()
        with self._lock:
            if self._first_key is None:
                self._first_key = pts
            # A loss at the very time of the key frame is a loss inside it, or of what comes next.
            if self._spans and self._spans[-1][1] is None and self._is_whole and self._healed_after < pts:
                # A decoder's times never go back: where it is ahead, the key frame has the time of a damaged one.
                self._spans.append((self._spans.pop()[0], pts if end <= pts + _MARGIN_NS else end + 1))
        _by_thread[threading.get_ident()] = self
        return self._gst.PadProbeReturn.DROP  # nothing is linked there

    def _on_event(self, _pad: Any, info: Any) -> Any:
        event = info.get_event()
        if event.type == self._gst.EventType.GAP:
            with self._lock:
                self._note(event.parse_gap()[0])
        elif event.has_name(LOSS):
            since = self._end_of_output() - _MARGIN_NS
            with self._lock:
                self._is_whole = False
                self._open(since)
                self._watch("frames", self._output, self._on_frame)
        elif event.has_name(WHOLE):
            with self._lock:
                self._is_whole = True
        return self._gst.PadProbeReturn.OK

    def _on_request(self, _pad: Any, info: Any) -> Any:
        # rtph264depay asks for a key frame after every loss, also after those that the jitter buffer does not tell of.
        if info.get_event().has_name("GstForceKeyUnit"):
            pts = self._pts_of_packets()
            with self._lock:
                # What came before the first packet is not missed: its picture is the first whole one.
                self._unsure_until = pts - 1 if self._is_connecting else pts
                self._is_connecting = False
                self._is_loss_told = False
                self._watch("pictures", self._depay.get_static_pad("src"), self._on_picture)
        return self._gst.PadProbeReturn.OK

    def _on_picture(self, pad: Any, info: Any) -> Any:
        """Called in the depayloader's thread, as `_on_request`, for the pictures from a loss on to the first whole one.

        The first of them may be one that came before the loss: it lay in the depayloader and lacks its end.
        """
        pts = info.get_buffer().pts
        with self._lock:
            is_first, self._is_loss_told = not self._is_loss_told, True
            is_whole = self._unsure_until is None or pts > self._unsure_until
            if is_whole:
                self._watched.discard("pictures")
        if is_first:
            tell(pad, LOSS)
        if not is_whole:
            return self._gst.PadProbeReturn.OK
        tell(pad, WHOLE)
        return self._gst.PadProbeReturn.REMOVE

    def _on_frame(self, _pad: Any, info: Any) -> Any:
        """Called for the first frame that is put out after damage: it may have the time of the one before it."""
        with self._lock:
            self._watched.discard("frames")
            if self._spans and self._spans[-1][1] is None:
                self._open(info.get_buffer().pts)
        return self._gst.PadProbeReturn.REMOVE

    def _watch(self, name: str, pad: Any, callback: Any) -> None:
        """Call back for each buffer until that says to end it; locked, so that the callback finds itself entered."""
        if name not in self._watched:
            self._watched.add(name)
            on_pad(pad, self._gst.PadProbeType.BUFFER, callback)

    def _on_end(self, _pad: Any, info: Any) -> Any:
        # A connection may break inside a picture: what has come of it is decoded, and no decoder complains.
        if info.get_event().type == self._gst.EventType.EOS:
            with self._lock:
                self._end = self._pts_of_packets() - _MARGIN_NS
        return self._gst.PadProbeReturn.OK

    def _pts_of_packets(self) -> int:
        """Return the PTS of the picture that the last packet is of; 0 before the first one."""
        pts = self._depay.get_property("stats").get_value("running-time-pts")
        return 0 if pts == self._gst.CLOCK_TIME_NONE else int(pts)


def tell(pad: Any, name: str) -> None:
    """Let `LOSS` or `WHOLE` travel with the pictures, in front of the one that is at a depayloader's pad."""
    gst = load().gst
    pad.push_event(gst.Event.new_custom(gst.EventType.CUSTOM_DOWNSTREAM, gst.Structure.new_empty(name)))


@cache
def _listen_to_libav() -> None:
    """Hear the errors of all decoders of libav, and what they conceal, which is on no bus and on no buffer."""
    gst = load().gst
    if "GST_DEBUG" not in os.environ:
        gst.debug_remove_log_function(None)  # that which writes to stderr, which was not asked for
    gst.debug_set_active(True)
    gst.debug_set_threshold_for_name("libav", gst.DebugLevel.INFO)
    gst.debug_add_log_function(_on_log, None)


def _on_log(category: Any, level: Any, _file: str, _function: str, _line: int, _of: Any, message: Any, *_: Any) -> None:
    follower = _by_thread.get(threading.get_ident())
    levels = load().gst.DebugLevel
    if follower is None or level not in (levels.ERROR, levels.INFO) or category.get_name() != "libav":
        return
    if _DAMAGE.search(message.get() or ""):
        follower.damaged()


_MOST_NS = 2_000_000_000
_FRESH_NS = 1_000_000_000


class Backlog:
    """Of one depayloader: `look` is called by the reader, pictures are measured where they pass.

    Args:
        clock: knows how long packets have waited.
        latency_ms: how late packets are by the order of the pipeline.
        running_ns: gives the running time of the pipeline, at a time of the monotonic clock.
    """

    def __init__(
        self, depay: Any, clock: SenderClock, *, latency_ms: int, running_ns: Callable[[int], int | None]
    ) -> None:
        self._gst = load().gst
        self._pad = depay.get_static_pad("src")
        self._clock = clock
        self._latency_ns = latency_ms * 1_000_000
        self._running_ns = running_ns
        self._is_measuring = self._is_skipping = False
        self.skipped = 0

    def look(self) -> None:
        """Measure the next picture. A camera may send one in many seconds: the last one tells nothing of now."""
        if not self._is_measuring:
            self._is_measuring = True
            on_pad(self._pad, self._gst.PadProbeType.BUFFER, self._on_picture)

    def _on_picture(self, pad: Any, info: Any) -> Any:
        picture = info.get_buffer()
        if self._is_skipping:
            is_fresh = self._behind_ns(picture.pts) <= _FRESH_NS
            is_start = is_fresh and not picture.has_flags(self._gst.BufferFlags.DELTA_UNIT)
        else:
            is_start = self._clock.waited_ns - self._latency_ns <= _MOST_NS
        if not is_start:
            if not self._is_skipping:
                tell(pad, LOSS)
            self._is_skipping = True
            self.skipped += 1
            return self._gst.PadProbeReturn.DROP
        if self._is_skipping:
            self._clock.waited_ns = 0  # until the next look
            tell(pad, WHOLE)
        self._is_measuring = self._is_skipping = False
        return self._gst.PadProbeReturn.REMOVE

    def _behind_ns(self, pts: int) -> int:
        running_ns = self._running_ns(time.monotonic_ns())
        if running_ns is None or pts == self._gst.CLOCK_TIME_NONE:
            return 0
        return running_ns - pts - self._clock.lag_ns - self._latency_ns


class GstLimit:
    """Lets frames go right behind the decoder, before they are scaled; only `set` installs and removes the probe.

    Args:
        most_fps: limit of the stream itself, whether it has a cap or not.

    Attributes:
        dropped: how many went, by reason; counted in a streaming thread.
    """

    def __init__(self, decoded: Any, most_fps: float | None) -> None:
        self._gst = load().gst
        self._pad = decoded.get_static_pad("src")
        self._most_fps = most_fps
        self._limit: tuple[RateLimit, DropReason] | None = None
        self._time = StreamTime()
        self._probe: int | None = None
        self.dropped = {DropReason.MAX_FPS: 0, DropReason.CAPPED: 0}
        self.set(None)

    def set(self, cap_fps: float | None) -> None:
        """Raises `ValueError` if it is not positive."""
        limits = ((cap_fps, DropReason.CAPPED), (self._most_fps, DropReason.MAX_FPS))
        lowest = min(((fps, reason) for fps, reason in limits if fps is not None), default=None)
        self._limit = None if lowest is None else (RateLimit(lowest[0]), lowest[1])
        if self._limit is not None and self._probe is None:
            self._probe = on_pad(self._pad, self._gst.PadProbeType.BUFFER, self._on_decoded)
        elif self._limit is None and self._probe is not None:
            self._pad.remove_probe(self._probe)
            self._probe = None
        self.cap_fps = cap_fps

    def _on_decoded(self, _pad: Any, info: Any) -> Any:
        limit, pts = self._limit, info.get_buffer().pts
        if limit is None or pts == self._gst.CLOCK_TIME_NONE:
            return self._gst.PadProbeReturn.OK
        time_ns, _ = self._time.of(pts, arrived_ns=time.monotonic_ns())
        if limit[0].admits(time_ns):
            return self._gst.PadProbeReturn.OK
        self.dropped[limit[1]] += 1
        return self._gst.PadProbeReturn.DROP
