"""The end of a pipeline: from decoded frames to the sink, those of a camera as they come, others at their own pace.

Video behind a web address is told from pictures by its first bytes: what a server calls it is often wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from edge.config.schema import StreamConfig
from edge.media.address import Address
from edge.media.gstreamer.binding import joined, load, message_fields, on_pad, parse_bin, set_if_present

__all__ = ["Pace", "add_tail", "is_burst", "is_video"]

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
    # At pictures without a duration, as of web cameras, videorate ends the process: there the reader lets them go.
    has_rate = is_paced_by_source and stream.max_fps is not None and address.scheme not in ("http", "https")
    tail = parse_bin(
        joined(
            sources["decoded"],
            sources["rate"] if has_rate else "",
            sources["newest" if is_paced_by_source else "waiting"],
            codecs["scale"],
        ),
        has_pads=True,
    )
    pipeline.add(tail)
    sink = pipeline.get_by_name("sink")
    sink.set_property("drop", is_live)
    sink.set_property("max-buffers", 1 if is_live else 2)
    # A file played at its own pace is paced here: in front of the decoder there is no clock.
    sink.set_property("sync", address.is_file_like and stream.realtime)
    if stream.max_fps is not None:
        set_if_present(pipeline.get_by_name("rate"), max_rate=_coarse_rate(stream.max_fps, stream.stall_s))
    return tail


def _coarse_rate(max_fps: float, stall_s: float) -> int:
    """Return whole frames per second, from which `edge.media.rate` picks exactly.

    Twice a fractional limit, since picking 7.5 out of 8 would leave one double gap in every fifteen frames; and
    never so few that the stall watchdog misses frames.
    """
    wanted = max_fps if float(max_fps).is_integer() else 2 * max_fps
    return max(math.ceil(wanted), math.ceil(3 / stall_s))


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
