"""What a pipeline says: the messages on its bus, in our words, and the camera's own clock.

When a camera has taken a picture is known from the sender reports that come beside its packets. A report says which
time of day belongs to which RTP time; one packet twice a second says which PTS belongs to that, and when it came: the
jitter buffer lets PTS go as RTP times do. Where it was left to follow arrival, they stood still after each burst.
GStreamer's own meta for this came with one frame in a hundred and stood still (1.22), or is not there at all (1.20).
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from edge.errors import SourceError
from edge.media.address import IS_UNKNOWN, OVER_TCP, Address, redact
from edge.media.gstreamer.binding import load, message_fields, on_pad, weakly
from edge.media.probe import remedy_of_answer, remedy_of_refusal

__all__ = ["BusReader", "SenderClock", "unix_ns_from_ntp"]

_NO_PICTURES = ("text/html", "application/json")
_CONTENT_TYPE = re.compile(r"response-headers=.*content-type=\(string\)\"?([\w.+/-]+)", re.IGNORECASE)
_NO_LOGIN = "No supported authentication protocol was found"
_STATUS = re.compile(r"^[A-Z][\w ,'-]+ \(\d{3}\)", re.MULTILINE)
_NOT_OVER_TCP = "allow more transport protocols"
_TIMEOUT = "Timeout while waiting for server response"  # of gst_rtsp_strresult; the message is "Could not read"
_FLOW = re.compile(r"streaming stopped, reason ([a-z-]+) \(")


class BusReader:
    """Polled by the reading thread, so that no main loop is needed.

    Attributes:
        problem: the first error, or the first one that says what failed; to be raised once the frames before it are
            read.
        warnings: data that a decoder could not use, and the like.
        has_ended: whether the end of the stream has reached the sink.
        turn_deg: by how many degrees clockwise the file asks to be turned, 0 to 359.
    """

    def __init__(self, bus: Any, address: Address, *, is_live: bool) -> None:
        self._gst = load().gst
        self._bus = bus
        self._address = address
        self._is_live = is_live
        self.problem: Exception | None = None
        self._is_vague, self._is_page = True, False
        self.warnings = 0
        self.has_ended = False
        self.turn_deg = 0

    def poll(self) -> None:
        """Take in everything that has been said since the last call."""
        while (message := self._bus.pop()) is not None:
            self._take(message)

    def _take(self, message: Any) -> None:
        kind = self._gst.MessageType
        match message.type:
            case kind.ERROR:
                if self.problem is None or self._is_vague:
                    self._take_error(message)
            case kind.TAG:
                is_told, orientation = message.parse_tag().get_string(self._gst.TAG_IMAGE_ORIENTATION)
                if is_told:  # such as rotate-90 or flip-rotate-0
                    degrees = orientation.rpartition("-")[2]
                    self.turn_deg = int(degrees) % 360 if degrees.isdecimal() else 0
            case kind.WARNING:
                self.warnings += 1
            case kind.EOS:
                self.has_ended = True
            case kind.ELEMENT if message.has_name("http-headers") and self._is_live:
                self._take_headers(message_fields(message).to_string())
            case kind.ELEMENT if message.has_name("GstRTSPSrcTimeout"):
                self.problem = self.problem or SourceError(f"{self._address.shown}: the camera has fallen silent")

    def _take_headers(self, told: str) -> None:
        """A web camera that answers with a page for people would be searched for JPEGs for ever."""
        # A structure in a structure, which the binding cannot give.
        found = _CONTENT_TYPE.search(told.replace("\\", ""))
        kind = found[1].lower() if found is not None else ""
        if kind.startswith(_NO_PICTURES) and self.problem is None:
            self._is_page = True
            self.problem = SourceError(
                f"{self._address.shown}: expected JPEG pictures (multipart/x-mixed-replace, image/jpeg), got {kind}",
                hint=IS_UNKNOWN,
            )

    def _take_error(self, message: Any) -> None:
        error, debug = message.parse_error()
        if _NO_LOGIN in (debug or ""):  # 1.20 begins so with each refusal, whose reason comes next
            return
        is_vague = error.matches(self._gst.StreamError.quark(), self._gst.StreamError.FAILED)
        is_known = self._is_page and message.src.get_name() != "source"  # a refusal comes with a page, too
        if self.problem is not None and (is_vague or is_known):
            return
        words = redact(error.message).rstrip(".")
        # The debug text is left out, except for one word: rtspsrc writes the whole URL into it.
        flow = _FLOW.search(debug or "")
        if is_vague and self._address.scheme in ("http", "https") and message.src.get_name() == "source":
            # souphttpsrc names an answer that is a refusal, but not that there was none.
            words, is_vague = "the server cannot be reached, does not answer, or has broken off", False
        elif _TIMEOUT in (debug or "") and message.src.get_name() == "source":
            words = f"no answer for {message.src.get_property('tcp-timeout') / 1e6:g} s"  # microseconds
        elif is_vague and flow is not None:
            words = f"{words} ({flow[1]})"
        codes, hint = self._gst.ResourceError, None
        is_login = error.matches(codes.quark(), codes.NOT_AUTHORIZED)
        if error.matches(codes.quark(), codes.NOT_FOUND):
            hint = IS_UNKNOWN
        elif is_login:
            hint = remedy_of_refusal(self._address)
        elif _NOT_OVER_TCP in words:
            words, hint = "the camera does not send over TCP", OVER_TCP
        is_permanent = hint is not None or not self._is_live
        if hint is None and self._address.server is not None and (answer := _STATUS.search(debug or "")) is not None:
            words, hint = answer[0], remedy_of_answer(self._address)
        self._is_vague = is_vague
        self.problem = SourceError(
            f"{self._address.shown}: {words}",
            hint=None if self._address.is_device else hint,
            is_permanent=is_permanent,
            wants_login=is_login,
        )


_log = logging.getLogger(__name__)

_NTP_TO_UNIX_S = 2_208_988_800  # RFC 5905: NTP counts from 1900
_MOST_APART_NS = 5_000_000_000  # many cameras were never set: then the time of arrival is nearer to the truth
_CLOCK_RATE = 90_000  # of all video payloads, RFC 3551 and later
_LOOKS = 8  # in four seconds: the quickest packet of these was not held up
_MOST_BEHIND_NS = 1_000_000_000
# The jitter buffer waits by PTS for a packet that is lost: so long at most, or, behind a longer jump than these, until
# `stall_s` ends the connection.
_AHEAD_NS = range(1_000_000_000, 6_000_000_000)
_OLD_NS = 3600 * 1_000_000_000  # RTP times wrap after 13 hours


def unix_ns_from_ntp(ntp: int) -> int:
    """Return nanoseconds since 1970 of a 64-bit NTP time, seconds in its upper half."""
    return ((ntp >> 32) - _NTP_TO_UNIX_S) * 1_000_000_000 + ((ntp & 0xFFFFFFFF) * 1_000_000_000 >> 32)


class SenderClock:
    """Follows the video of one RTSP connection. GStreamer's threads note reports and packets, the reader asks for them.

    Attributes:
        lag_ns: how long after the running time that is its PTS a packet comes that nothing holds up.
        waited_ns: how long the packet that was looked at last had waited for those behind the jitter buffer.
    """

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._gst = load().gst
        self._anchor: tuple[int, int] | None = None  # PTS, RTP time
        self._report: tuple[int, int] | None = None  # unix ns, RTP time
        self._came: tuple[int, int] = 0, 0  # running time, RTP time
        self._lags: deque[int] = deque(maxlen=_LOOKS)
        self._manager: Any = None
        self._input: Any = None
        self._pad: Any = None
        self._running_ns: Callable[[int], int | None] = lambda _: None
        self._is_looking = self._is_off = False
        self.lag_ns = self.waited_ns = 0

    def attach(self, manager: Any) -> None:
        """Hear the reports that an rtpbin gets."""
        self._manager = manager
        manager.connect("on-ssrc-active", weakly(self._on_active))

    def follow(self, pad: Any) -> None:
        """Read packets as they come, and of this pad, behind the jitter buffer: one each for a look."""
        self._input = next(one for one in self._manager.sinkpads if one.get_name().startswith("recv_rtp_sink_"))
        self._pad = pad

    def look(self, running_ns: Callable[[int], int | None]) -> None:
        """Note the next packet; `running_ns` gives the running time at a time of the monotonic clock."""
        if self._pad is not None and not self._is_looking:
            self._is_looking, self._running_ns = True, running_ns  # before the probe: another thread may end it at once
            on_pad(self._input, self._gst.PadProbeType.BUFFER, self._on_arrival)

    def captured_at_ns(self, pts: int, *, arrived_at_ns: int) -> int | None:
        """Return when a frame was taken, unix ns, never after it arrived; None before the first report, or if the
        camera's clock is off.

        Args:
            pts: of the frame's buffer.
            arrived_at_ns: when it arrived by our own clock, unix ns.
        """
        anchor, report = self._anchor, self._report
        if anchor is None or report is None:
            return None
        captured_at_ns = report[0] + _since_ns(report[1], anchor[1]) + pts - anchor[0]
        is_off = abs(captured_at_ns - arrived_at_ns) > _MOST_APART_NS
        if is_off and not self._is_off:
            off_s = (captured_at_ns - arrived_at_ns) / 1e9
            _log.warning("clock of the camera is off, arrival is used stream=%s off_s=%.1f", self._stream, off_s)
        self._is_off = is_off
        return None if is_off else min(captured_at_ns, arrived_at_ns)

    def note_report(self, ntp: int, rtp: int) -> None:
        """Record a sender report: 64-bit NTP time, 32-bit RTP time."""
        self._report = unix_ns_from_ntp(ntp), rtp

    def note_arrival(self, running_ns: int, rtp: int) -> None:
        """Record when a packet came to the jitter buffer, and its 32-bit RTP time."""
        self._came = running_ns, rtp

    def note_packet(self, pts: int, rtp: int, *, running_ns: int) -> None:
        """Record a packet that leaves the jitter buffer, after `note_arrival` of this one or of one that is newer."""
        came_ns, came_rtp = self._came
        since_ns = _since_ns(came_rtp, rtp)
        self._anchor, report = (pts, rtp), self._report
        if report is not None and (age_ns := _since_ns(report[1], rtp)) > _OLD_NS:  # of a camera that sends no more
            self._report = report[0] + age_ns, rtp
        self.waited_ns = running_ns - came_ns - since_ns
        self._lags.append(came_ns + since_ns - pts)
        self.lag_ns = min(self._lags)
        # A clock that has drifted gets new PTS, by arrival. Those that have jumped far ahead stay: a decoder's times do
        # not go back.
        if self.lag_ns > _MOST_BEHIND_NS or -self.lag_ns in _AHEAD_NS:
            self._manager.emit("clear-pt-map")
            self._anchor = None
            self._lags.clear()
            self.lag_ns = 0

    def _on_active(self, manager: Any, session: int, ssrc: int) -> None:
        source = manager.emit("get-internal-session", session).emit("get-source-by-ssrc", ssrc)
        stats = source.get_property("stats") if source is not None else None
        if stats is None or not stats.get_value("have-sr"):
            return
        if stats.get_value("clock-rate") != _CLOCK_RATE:  # sound
            return
        self.note_report(stats.get_value("sr-ntptime"), stats.get_value("sr-rtptime"))

    def _on_arrival(self, _pad: Any, info: Any) -> Any:
        running_ns = self._running_ns(time.monotonic_ns())
        if running_ns is None:
            return self._gst.PadProbeReturn.OK
        self.note_arrival(running_ns, _rtp_of(info.get_buffer()))
        on_pad(self._pad, self._gst.PadProbeType.BUFFER, self._on_packet)
        return self._gst.PadProbeReturn.REMOVE

    def _on_packet(self, _pad: Any, info: Any) -> Any:
        buffer, running_ns = info.get_buffer(), self._running_ns(time.monotonic_ns())
        if buffer.pts == self._gst.CLOCK_TIME_NONE or running_ns is None:
            return self._gst.PadProbeReturn.OK
        self.note_packet(buffer.pts, _rtp_of(buffer), running_ns=running_ns)
        self._is_looking = False
        return self._gst.PadProbeReturn.REMOVE


def _rtp_of(packet: Any) -> int:
    return int.from_bytes(packet.extract_dup(4, 4), "big")


def _since_ns(begin_rtp: int, rtp: int) -> int:
    """Return the time from one RTP time to another, that may be the earlier one; they wrap."""
    ticks = (rtp - begin_rtp + (1 << 31)) % (1 << 32) - (1 << 31)
    return ticks * 1_000_000_000 // _CLOCK_RATE
