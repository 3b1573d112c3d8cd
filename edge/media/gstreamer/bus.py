"""Messages on a pipeline's bus, in our words."""

from __future__ import annotations

import re
from typing import Any

from edge.errors import SourceError
from edge.media.address import IS_REFUSED, IS_UNKNOWN, Address, redact
from edge.media.gstreamer.binding import load, message_fields

__all__ = ["BusReader"]

_NO_PICTURES = ("text/html", "application/json")
_CONTENT_TYPE = re.compile(r"response-headers=.*content-type=\(string\)\"?([\w.+/-]+)", re.IGNORECASE)
_NO_LOGIN = "No supported authentication protocol was found"
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
        codes = self._gst.ResourceError
        self._refusals = ((codes.NOT_FOUND, IS_UNKNOWN), (codes.NOT_AUTHORIZED, IS_REFUSED))
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
        hint = next(
            (hint for code, hint in self._refusals if error.matches(self._gst.ResourceError.quark(), code)), None
        )
        self._is_vague = is_vague
        self.problem = SourceError(
            f"{self._address.shown}: {words}",
            hint=None if self._address.is_device else hint,
            is_permanent=hint is not None or not self._is_live,
            wants_login=error.matches(self._gst.ResourceError.quark(), self._gst.ResourceError.NOT_AUTHORIZED),
        )
