"""Pixels of a `Gst.Buffer` as a numpy view, without a copy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import SourceError
from edge.media.gstreamer.binding import load

__all__ = ["view_pixels"]


def view_pixels(buffer: Any, info: Any) -> NDArray[np.uint8]:
    """Return the RGB part of a mapped RGB or RGBA buffer.

    Args:
        buffer: the `Gst.Buffer`; it stays mapped until the returned array and all views of it are gone, so that a
            reader can never look at memory that has been given back, not even when the source is closed meanwhile.
        info: the `GstVideo.VideoInfo` of its caps.

    Returns:
        uint8 (height, width, 3) RGB, read-only, rows padded as the buffer has them.

    Raises:
        SourceError: if the buffer cannot be mapped.
    """
    meta = load().video.buffer_get_video_meta(buffer)
    row_bytes = meta.stride[0] if meta is not None else info.stride[0]
    offset = meta.offset[0] if meta is not None else info.offset[0]
    mapping = _Mapping(buffer)
    mapping.__array_interface__ = {
        "version": 3,
        "typestr": "|u1",
        "data": (mapping.address + offset, True),
        "shape": (info.height, info.width, 3),
        "strides": (row_bytes, info.finfo.pixel_stride[0], 1),
    }
    return np.asarray(mapping)


class _Mapping:
    """A buffer mapped for reading for as long as this object lives; arrays made of it keep it alive."""

    __array_interface__: dict[str, Any]

    def __init__(self, buffer: Any) -> None:
        is_mapped, self._map = buffer.map(load().gst.MapFlags.READ)
        if not is_mapped:
            raise SourceError("a decoded frame could not be mapped for reading")
        self._buffer = buffer
        # memoryview with the overrides of python3-gst-1.0, bytes without; both are kept by self._map and self._bytes
        self._bytes = np.frombuffer(self._map.data, np.uint8)
        self.address: int = self._bytes.__array_interface__["data"][0]

    def __del__(self) -> None:
        # While the interpreter ends, GStreamer's types may be gone before a view that somebody kept: unmapping crashes.
        if hasattr(self, "_buffer") and not sys.is_finalizing():
            self._buffer.unmap(self._map)
