"""When a camera has taken a picture, by the camera's own clock: from the sender reports that come beside its packets.

A report says which time of day belongs to which RTP time; one packet after each report says which PTS belongs to that.
GStreamer's own meta for this came with one frame in a hundred and stood still (1.22), or is not there at all (1.20).
"""

from __future__ import annotations

import logging
from typing import Any

from edge.media.gstreamer.binding import load, on_pad, weakly

__all__ = ["SenderClock", "unix_ns_from_ntp"]

_log = logging.getLogger(__name__)

_NTP_TO_UNIX_S = 2_208_988_800  # RFC 5905: NTP counts from 1900
_MOST_APART_NS = 5_000_000_000  # many cameras were never set: then the time of arrival is nearer to the truth
_CLOCK_RATE = 90_000  # of all video payloads, RFC 3551 and later


def unix_ns_from_ntp(ntp: int) -> int:
    """Return nanoseconds since 1970 of a 64-bit NTP time, seconds in its upper half."""
    return ((ntp >> 32) - _NTP_TO_UNIX_S) * 1_000_000_000 + ((ntp & 0xFFFFFFFF) * 1_000_000_000 >> 32)


class SenderClock:
    """Follows the video of one RTSP connection. GStreamer's threads note reports, the reader asks for them."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._gst = load().gst
        self._anchor: tuple[int, int] | None = None  # PTS, and when that was taken, unix ns
        self._report: tuple[int, int] | None = None  # unix ns, RTP time
        self._pad: Any = None
        self._is_packet_due = self._is_off = False

    def attach(self, manager: Any) -> None:
        """Hear the reports that an rtpbin gets."""
        manager.connect("on-ssrc-active", weakly(self._on_active))

    def follow(self, pad: Any) -> None:
        """Read packets of this pad: one after each report."""
        self._pad = pad

    def captured_at_ns(self, pts: int, *, arrived_at_ns: int) -> int | None:
        """Return when a frame was taken, unix ns; None before the first report, or if the camera's clock is off.

        Args:
            pts: of the frame's buffer.
            arrived_at_ns: when it arrived by our own clock, unix ns.
        """
        anchor = self._anchor
        if anchor is None:
            return None
        captured_at_ns = anchor[1] + pts - anchor[0]
        is_off = abs(captured_at_ns - arrived_at_ns) > _MOST_APART_NS
        if is_off and not self._is_off:
            off_s = (captured_at_ns - arrived_at_ns) / 1e9
            _log.warning("clock of the camera is off, arrival is used stream=%s off_s=%.1f", self._stream, off_s)
        self._is_off = is_off
        return None if is_off else captured_at_ns

    def note_report(self, ntp: int, rtp: int) -> None:
        """Record a sender report: 64-bit NTP time, 32-bit RTP time."""
        self._report = unix_ns_from_ntp(ntp), rtp

    def note_packet(self, pts: int, rtp: int) -> None:
        """Record a packet's PTS and its 32-bit RTP time, after a report."""
        if self._report is None:
            return
        unix_ns, report_rtp = self._report
        since = (rtp - report_rtp + (1 << 31)) % (1 << 32) - (1 << 31)
        self._anchor = pts, unix_ns + since * 1_000_000_000 // _CLOCK_RATE

    def _on_active(self, manager: Any, session: int, ssrc: int) -> None:
        source = manager.emit("get-internal-session", session).emit("get-source-by-ssrc", ssrc)
        stats = source.get_property("stats") if source is not None else None
        if stats is None or not stats.get_value("have-sr"):
            return
        if stats.get_value("clock-rate") != _CLOCK_RATE:  # sound
            return
        self.note_report(stats.get_value("sr-ntptime"), stats.get_value("sr-rtptime"))
        if not self._is_packet_due and self._pad is not None:
            self._is_packet_due = True  # before the probe, which another thread may have ended by the next line
            on_pad(self._pad, self._gst.PadProbeType.BUFFER, self._on_packet)

    def _on_packet(self, _pad: Any, info: Any) -> Any:
        buffer = info.get_buffer()
        if buffer.pts == self._gst.CLOCK_TIME_NONE:
            return self._gst.PadProbeReturn.OK
        self.note_packet(buffer.pts, int.from_bytes(buffer.extract_dup(4, 4), "big"))
        self._is_packet_due = False
        return self._gst.PadProbeReturn.REMOVE
