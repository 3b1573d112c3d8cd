"""The gate in front of the scaler: decides size and colour for every new caps, in the streaming thread itself.

A caps event passes here before the first frame that it describes. What we set on the elements behind the gate is
therefore in force for exactly those frames, also when a camera changes its resolution in mid-stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edge.media.gstreamer.binding import caps_fields, load, on_pad
from edge.types import ImageSize, Letterbox, Preprocess
from edge.vision import letterbox

__all__ = ["BufferGate", "declared_or_bt601"]

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
        return letterbox.fit(source, self._preprocess)

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
        fitted = letterbox.fit(source, self._preprocess).fitted
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
