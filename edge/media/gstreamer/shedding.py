"""Leaves frames out of one pipeline: after its decoder by time, before it those that no other picture refers to.

Costs nothing while nothing is left out: the probes are there only then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edge.media.disposable import Disposable
from edge.media.gstreamer.binding import caps_fields, load
from edge.media.rate import RateLimit
from edge.media.shedding import EVERYTHING, Shedding

__all__ = ["GstShedding"]

_CODECS = {"video/x-h264": "h264", "video/x-h265": "h265"}
_HEAD_BYTES = 256  # the first slice begins within them, unless long messages to people stand before it


class GstShedding:
    """Used by the reading thread; the probes run in the streaming threads.

    Args:
        decoded: the element that decoded frames go through next.
        decoder: gives the decoder; None as long as there is none.

    Attributes:
        capped: frames let go after the decoder.
        skipped: pictures that were not decoded.
    """

    def __init__(self, decoded: Any, decoder: Callable[[], Any]) -> None:
        self._gst = load().gst
        self._decoded = decoded.get_static_pad("src")
        self._decoder = decoder
        self._limit: RateLimit | None = None
        self._cap: tuple[Any, int] | None = None
        self._skip: tuple[Any, int] | None = None
        self._disposable: Disposable | None = None
        self._has_caps = False
        self.now = EVERYTHING
        self.capped = self.skipped = 0

    def obey(self, order: Shedding) -> None:
        """Leave out what is ordered, from now on."""
        if order.max_fps != self.now.max_fps:
            self._limit = None if order.max_fps is None else RateLimit(order.max_fps)
        buffers = self._gst.PadProbeType.BUFFER
        if self._limit is not None and self._cap is None:
            self._cap = self._decoded, self._decoded.add_probe(buffers, self._on_decoded)
        elif self._limit is None and self._cap is not None:
            _removed(self._cap)
            self._cap = None
        decoder = self._decoder()
        if order.skips and self._skip is None and decoder is not None:
            pad = decoder.get_static_pad("sink")
            self._skip = pad, pad.add_probe(buffers | self._gst.PadProbeType.EVENT_DOWNSTREAM, self._on_coded)
        elif not order.skips and self._skip is not None:
            _removed(self._skip)
            self._skip = None
        self.now = order

    def disconnect(self) -> None:
        """Let go of the pipeline: its pads hold us, and we hold its elements."""
        for probe in (self._cap, self._skip):
            if probe is not None:
                _removed(probe)
        self._cap = self._skip = None

    def _on_decoded(self, _pad: Any, info: Any) -> Any:
        limit, pts = self._limit, info.get_buffer().pts
        if limit is None or pts == self._gst.CLOCK_TIME_NONE or limit.admits(pts):
            return self._gst.PadProbeReturn.OK
        self.capped += 1
        return self._gst.PadProbeReturn.DROP

    def _on_coded(self, pad: Any, info: Any) -> Any:
        if not info.type & self._gst.PadProbeType.BUFFER:
            self._has_caps = False  # new ones, perhaps: they are read with the next picture
            return self._gst.PadProbeReturn.OK
        if not self._has_caps:
            self._disposable, self._has_caps = _disposable_of(pad.get_current_caps()), True
        if self._disposable is None or not _is_disposable(info.get_buffer(), self._disposable):
            return self._gst.PadProbeReturn.OK
        self.skipped += 1
        return self._gst.PadProbeReturn.DROP


def _disposable_of(caps: Any) -> Disposable | None:
    """Return what tells the pictures of these caps apart; None where that cannot be done."""
    fields = caps_fields(caps)
    codec = _CODECS.get(fields.get_name())
    # A field that nothing refers to may be one half of a frame that is shown.
    is_progressive = fields.get_string("interlace-mode") in (None, "progressive")
    is_of_frames = fields.get_string("coded-picture-structure") in (None, "frame")
    if codec is None or not (is_progressive and is_of_frames):
        return None
    data = fields.get_value("codec_data") if fields.has_field("codec_data") else None
    return Disposable(codec, None if data is None else data.extract_dup(0, data.get_size()))


def _is_disposable(picture: Any, disposable: Disposable) -> bool:
    found = disposable.takes(picture.extract_dup(0, _HEAD_BYTES))
    if found is None:
        found = disposable.takes(picture.extract_dup(0, picture.get_size()))
    return bool(found)


def _removed(probe: tuple[Any, int]) -> None:
    pad, number = probe
    pad.remove_probe(number)
