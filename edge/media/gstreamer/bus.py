"""What a pipeline says on its bus, in our words."""

from __future__ import annotations

from typing import Any

from edge.errors import SourceError
from edge.media.address import Address, redact
from edge.media.gstreamer.binding import load

__all__ = ["BusReader"]


class BusReader:
    """Polled by the reading thread, so that no main loop is needed.

    Attributes:
        problem: the first error, to be raised once the frames before it are read.
        warnings: data that a decoder could not use, and the like.
        has_ended: whether the end of the stream has reached the sink.
    """

    def __init__(self, bus: Any, address: Address, *, is_live: bool) -> None:
        self._gst = load().gst
        self._bus = bus
        self._address = address
        self._is_live = is_live
        self._permanent_codes = (self._gst.ResourceError.NOT_FOUND, self._gst.ResourceError.NOT_AUTHORIZED)
        self.problem: Exception | None = None
        self.warnings = 0
        self.has_ended = False

    def poll(self) -> None:
        """Take in everything that has been said since the last call."""
        while (message := self._bus.pop()) is not None:
            self._take(message)

    def _take(self, message: Any) -> None:
        kind = self._gst.MessageType
        match message.type:
            case kind.ERROR:
                self.problem = self.problem or self._error_of(message)
            case kind.WARNING:
                self.warnings += 1
            case kind.EOS:
                self.has_ended = True
            case kind.ELEMENT if message.has_name("GstRTSPSrcTimeout"):
                self.problem = self.problem or SourceError(f"{self._address.shown}: the camera has fallen silent")

    def _error_of(self, message: Any) -> SourceError:
        # The debug text is left out: rtspsrc writes the whole URL into it.
        error, _debug = message.parse_error()
        is_refusal = any(error.matches(self._gst.ResourceError.quark(), code) for code in self._permanent_codes)
        return SourceError(
            f"{self._address.shown}: {redact(error.message).rstrip('.')}",
            is_permanent=is_refusal or not self._is_live,
        )
