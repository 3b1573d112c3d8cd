"""The end of a pipeline: from decoded frames to the sink, those of a camera as they come, others at their own pace.

Video behind a web address is told from pictures by its first bytes: what a server calls it is often wrong.

The gate in front of the scaler decides size and colour for every new caps, in the streaming thread itself. A caps event
passes there before the first frame that it describes. What we set on the elements behind the gate is
therefore in force for exactly those frames, also when a camera changes its resolution in mid-stream.

The loop reads a file to its end and seeks back, again and again: every frame once. The time of every pass is set, to
follow the end of the last frame; a file played at its own pace makes good for the time that the seek took.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from edge.config.schema import StreamConfig
from edge.errors import SourceError
from edge.media.address import Address
from edge.media.gstreamer.binding import (
    caps_fields,
    joined,
    load,
    message_fields,
    on_pad,
    parse_bin,
)
from edge.types import ImageSize, Letterbox, Preprocess
from edge.vision import boxes

__all__ = ["BufferGate", "GstLoop", "Pace", "add_tail", "declared_or_bt601", "is_burst", "is_video"]

_MARK_WIDTH, _MARK_HEIGHT = "edge-source-width", "edge-source-height"


def declared_or_bt601(colorimetry: str | None, container: str | None) -> str | None:
    """Return the GStreamer colorimetry to read a YUV picture with, None for RGB (docs/adr/0009).

    What the stream declares is honoured, then what its container says; an undeclared matrix is BT.601, an undeclared
    range is limited.
    """
    video = load().video
    colour, other = video.VideoColorimetry(), video.VideoColorimetry()
    is_said_outside = container is not None and other.from_string(container)
    if colorimetry is None or not colour.from_string(colorimetry):
        colour.from_string(container if is_said_outside else "bt601")
    if colour.matrix == video.VideoColorMatrix.RGB:
        return None
    if is_said_outside:
        if colour.matrix == video.VideoColorMatrix.UNKNOWN:
            colour.matrix = other.matrix
        if colour.range == video.VideoColorRange.UNKNOWN:
            colour.range = other.range
    if colour.matrix == video.VideoColorMatrix.UNKNOWN:
        colour.matrix = video.VideoColorMatrix.BT601
    if colour.range == video.VideoColorRange.UNKNOWN:
        colour.range = getattr(video.VideoColorRange, "16_235")
    text: str = colour.to_string()
    return text


class BufferGate:
    """Watches one pad and sets the `fitted` caps filter and, in software, the `colour` caps setter behind it."""

    def __init__(
        self, pipeline: Any, preprocess: Preprocess, *, container_colour: Callable[[], str | None] = lambda: None
    ) -> None:
        self._gst = load().gst
        self._container_colour = container_colour
        self._preprocess = preprocess
        self._colour = pipeline.get_by_name("colour")  # absent in nvmm.launch: there the surface tells its matrix
        self._fitted = pipeline.get_by_name("fitted")
        self._sources: dict[ImageSize, ImageSize] = {}
        self.problem: Exception | None = None
        first = self._colour or pipeline.get_by_name("scale")
        on_pad(first.get_static_pad("sink"), self._gst.PadProbeType.EVENT_DOWNSTREAM, self._on_event)

    def letterbox_of(self, caps: Any) -> Letterbox:
        """`caps` are those of a sample."""
        fields = caps_fields(caps)
        fitted = ImageSize(width=fields.get_value("width"), height=fields.get_value("height"))
        source = self._sources[fitted]
        if fields.has_field(_MARK_WIDTH):
            source = ImageSize(width=fields.get_value(_MARK_WIDTH), height=fields.get_value(_MARK_HEIGHT))
        return boxes.fit(source, self._preprocess)

    def _on_event(self, _pad: Any, info: Any) -> Any:
        event = info.get_event()
        if event.type == self._gst.EventType.CAPS:
            try:
                self._set_caps(caps_fields(event.parse_caps()))
            except Exception as error:  # a C callback; the reader raises it
                self.problem = error
        return self._gst.PadProbeReturn.OK

    def _set_caps(self, fields: Any) -> None:
        source = ImageSize(width=fields.get_value("width"), height=fields.get_value("height"))
        fitted = boxes.fit(source, self._preprocess).fitted
        behind = self._caps(width=fitted.width, height=fitted.height)
        if self._sources.setdefault(fitted, source) != source:
            # Two source sizes with one fitted size: without a mark the new caps would equal the old ones, and
            # nothing behind the scaler could tell which frames are which.
            behind.set_value(_MARK_WIDTH, source.width)
            behind.set_value(_MARK_HEIGHT, source.height)
        if self._colour is not None:
            self._pin_colour(fields, behind)
        self._fitted.set_property("caps", behind)

    def _pin_colour(self, fields: Any, behind: Any) -> None:
        is_yuv = not fields.get_value("format").startswith(("RGB", "BGR", "xRGB", "xBGR", "ARGB", "ABGR", "GBR"))
        text = fields.get_value("colorimetry") if fields.has_field("colorimetry") else None
        colour = declared_or_bt601(text, self._container_colour()) if is_yuv else None
        in_front = self._caps() if colour is None else self._caps(colorimetry=colour)
        self._colour.set_property("caps", in_front)
        if colour is not None:
            behind.set_value("colorimetry", colour)

    def _caps(self, **values: Any) -> Any:
        caps = self._gst.Caps.new_empty_simple("video/x-raw")
        for name, value in values.items():
            caps.set_value(name, value)
        return caps


_LATE_NS = 1_000_000_000
_EARLY_NS = 60_000_000_000  # longer than segments are
_BEGINNINGS = (
    b"FLV\x01",
    b"\x1a\x45\xdf\xa3",  # Matroska, WebM
    b"\x00\x00\x00\x01",  # H.264, H.265
    b"\x00\x00\x01",  # the same, MPEG program streams
)
_TS_BYTES = 188
_LENGTH = re.compile(r"response-headers=.*content-length\\*=", re.IGNORECASE)  # a structure in a structure: escaped


def add_tail(
    pipeline: Any, stream: StreamConfig, address: Address, sources: Mapping[str, str], codecs: Mapping[str, str]
) -> Any:
    """Add all that stands behind the decoder, and return it; sections of launch texts by name."""
    is_paced_by_source = not address.is_file_like
    is_live = stream.realtime or is_paced_by_source
    queue = sources["newest" if is_paced_by_source else "waiting"]
    tail = parse_bin(joined(sources["decoded"], queue, codecs["scale"]), has_pads=True)
    pipeline.add(tail)
    sink = pipeline.get_by_name("sink")
    sink.set_property("drop", is_live)
    sink.set_property("max-buffers", 1 if is_live else 2)
    # A file played at its own pace is paced here: in front of the decoder there is no clock.
    sink.set_property("sync", address.is_file_like and stream.realtime)
    return tail


class Pace:
    """Plays what comes in bursts at its own pace: a playlist's segments, a recording behind a web address.

    Made before the first frame, which is shown when it comes, the others by their times. Where they come too late, or
    their times jump, that begins anew: what was late once would be late for ever, and all of a burst but its last frame
    be let go.
    """

    def __init__(self, pipeline: Any) -> None:
        self._gst = load().gst
        self._pipeline = pipeline
        self._sink = pipeline.get_by_name("sink")
        self._sink.set_property("sync", True)
        waiting = pipeline.get_by_name("newest")
        waiting.set_property("leaky", 0)
        waiting.set_property("max-size-buffers", 2)
        self._offset_ns: int | None = None
        on_pad(self._sink.get_static_pad("sink"), self._gst.PadProbeType.BUFFER, self._on_frame)

    def _on_frame(self, pad: Any, info: Any) -> Any:
        pts, clock = info.get_buffer().pts, self._pipeline.get_clock()
        segment = pad.get_sticky_event(self._gst.EventType.SEGMENT, 0)
        if pts == self._gst.CLOCK_TIME_NONE or clock is None or segment is None:
            return self._gst.PadProbeReturn.OK
        due_ns = segment.parse_segment().to_running_time(self._gst.Format.TIME, pts)
        ahead_ns = due_ns - (clock.get_time() - self._pipeline.get_base_time())
        if self._offset_ns is None or not -_LATE_NS < ahead_ns + self._offset_ns < _EARLY_NS:
            self._offset_ns = -ahead_ns
            self._sink.set_property("ts-offset", self._offset_ns)
        return self._gst.PadProbeReturn.OK


def is_video(head: bytes) -> bool:
    """Return whether what begins so is a container or coded video."""
    is_ts = head[:1] == b"\x47" and head[_TS_BYTES : _TS_BYTES + 1] in (b"\x47", b"")
    is_mp4 = head[4:8] in (b"ftyp", b"styp", b"moof", b"moov")
    return head.startswith(_BEGINNINGS) or is_ts or is_mp4 or _is_playlist(head)


def is_burst(pad: Any, head: bytes) -> bool:
    """Return whether it comes faster than it is to be shown: segments of a playlist, and what has an end.
    `pad`: of the web source, whose sticky event has the length.
    """
    told = pad.get_sticky_event(load().gst.EventType.CUSTOM_DOWNSTREAM_STICKY, 0)
    has_length = told is not None and _LENGTH.search(message_fields(told).to_string()) is not None
    return has_length or _is_playlist(head)


def _is_playlist(head: bytes) -> bool:
    """Return whether it is one of HLS (RFC 8216)."""
    return head.removeprefix(b"\xef\xbb\xbf").startswith(b"#EXTM3U")


class GstLoop:
    """Seeks `pipeline` back to its start each time that its stream has ended, and lets the times go on."""

    def __init__(self, pipeline: Any, where: str) -> None:
        self._gst = load().gst
        self._pipeline = pipeline
        self._where = where
        self._counter = pipeline.get_by_name("decoded")
        self._segment: Any = None
        self._decoded_before = 0
        self._end: int | None = None
        on_pad(self._counter.get_static_pad("sink"), self._gst.PadProbeType.EVENT_DOWNSTREAM, self._on_event)

    def restart(self, decoded: int) -> None:
        """Begin the next pass, once the last frame of this one was pulled; `decoded` are those of all passes.
        Raises `SourceError` if a whole pass gave no frame, or the file cannot be read from its start again.
        """
        if decoded == self._decoded_before:
            raise SourceError(f"{self._where}: cannot be looped: reading it from start to end gave no frame")
        self._decoded_before = decoded
        # Otherwise the seek would set the clock back to 0, and a paced sink would sleep through all passes so far.
        self._pipeline.set_start_time(self._gst.CLOCK_TIME_NONE)
        self._end = self._running_time_at_end()  # the flush makes the elements forget it
        if not self._pipeline.seek_simple(self._gst.Format.TIME, self._gst.SeekFlags.FLUSH, 0):
            raise SourceError(
                f"{self._where}: cannot be looped: it does not let itself be read from its start again",
                is_permanent=True,
            )

    def _on_event(self, _pad: Any, info: Any) -> Any:
        event = info.get_event()
        if event.type == self._gst.EventType.SEGMENT:
            self._shift(event.parse_segment())
        return self._gst.PadProbeReturn.OK

    def _shift(self, new: Any) -> None:
        """Let the running time of `new` begin where the one before it ended; runs ahead of the event itself."""
        end = self._end if self._end is not None else self._running_time_at_end()
        self._end = None
        offset = 0 if end is None else end - new.base
        self._counter.get_static_pad("src").set_offset(offset)
        self._segment = (new.copy(), offset)

    def _running_time_at_end(self) -> int | None:
        """Return the running time at which the last frame that was counted ends; None before the first pass."""
        time = self._gst.Format.TIME
        is_known, end = self._counter.get_static_pad("src").query_position(time)
        if self._segment is None or not is_known:
            return None
        old, shift = self._segment
        running: int = old.to_running_time(time, old.start + end - old.time) + shift
        return running
