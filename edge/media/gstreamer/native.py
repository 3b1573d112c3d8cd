"""The few calls that every frame needs, straight into GStreamer's libraries: through PyGObject each takes 2 to 20 us.

What takes no lock of an element is called with the interpreter's lock held. All else gives that up first: a streaming
thread may hold an element's lock and wait for the interpreter.

Source: gst/gstminiobject.h, gst/gstbuffer.h, gst/gstmemory.h and gst/video/gstvideometa.h; GStreamer keeps these
structures as they are throughout 1.x.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import SourceError

__all__ = ["NO_TIME", "Counter", "HeldCaps", "PixelLayout", "RunningClock", "Sample", "Sink"]

NO_TIME = (1 << 64) - 1
_FLAG_DISCONT, _FLAG_CORRUPTED = 1 << 6, 1 << 8
_FORMAT_TIME = 3
_MAP_READ = 1
_ASK_EVERY_NS = 1_000_000_000

_Pointer, _Int, _Uint64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64


class _Buffer(ctypes.Structure):
    """GstBuffer, as far as it is read; the fields before `pool` are those of GstMiniObject."""

    _fields_ = (
        ("type", ctypes.c_size_t),
        ("refcount", _Int),
        ("lockstate", _Int),
        ("flags", ctypes.c_uint),
        ("functions", _Pointer * 3),
        ("priv_uint", ctypes.c_uint),
        ("priv_pointer", _Pointer),
        ("pool", _Pointer),
        ("pts", _Uint64),
    )


class _MapInfo(ctypes.Structure):
    _fields_ = (
        ("memory", _Pointer),
        ("flags", _Int),
        ("data", _Pointer),
        ("size", ctypes.c_size_t),
        ("maxsize", ctypes.c_size_t),
        ("user_data", _Pointer * 4),
        ("reserved", _Pointer * 4),
    )


class _VideoMeta(ctypes.Structure):
    """GstVideoMeta, as far as it is read; the first two fields are those of GstMeta."""

    _fields_ = (
        ("flags", _Int),
        ("info", _Pointer),
        ("buffer", _Pointer),
        ("frame_flags", _Int),
        ("format", _Int),
        ("id", _Int),
        ("width", ctypes.c_uint),
        ("height", ctypes.c_uint),
        ("planes", ctypes.c_uint),
        ("offset", ctypes.c_size_t * 4),
        ("stride", _Int * 4),
    )


class _Calls:
    """Functions of GStreamer by their own names, without `gst_`."""

    def __init__(self) -> None:
        quick, video = ctypes.PyDLL(_GST), ctypes.PyDLL("libgstvideo-1.0.so.0")
        base, app = ctypes.CDLL(_GST), ctypes.CDLL("libgstapp-1.0.so.0")
        self.try_pull_sample = _typed(app.gst_app_sink_try_pull_sample, _Pointer, _Pointer, _Uint64)
        self.mini_object_ref = _typed(quick.gst_mini_object_ref, _Pointer, _Pointer)
        self.mini_object_unref = _typed(quick.gst_mini_object_unref, None, _Pointer)
        self.sample_get_buffer = _typed(quick.gst_sample_get_buffer, _Pointer, _Pointer)
        self.sample_get_caps = _typed(quick.gst_sample_get_caps, _Pointer, _Pointer)
        self.sample_get_segment = _typed(quick.gst_sample_get_segment, _Pointer, _Pointer)
        self.to_running_time = _typed(quick.gst_segment_to_running_time, _Uint64, _Pointer, _Int, _Uint64)
        self.caps_to_string = _typed(quick.gst_caps_to_string, _Pointer, _Pointer)
        self.buffer_map = _typed(quick.gst_buffer_map, _Int, _Pointer, _Pointer, _Int)
        self.buffer_unmap = _typed(quick.gst_buffer_unmap, None, _Pointer, _Pointer)
        self.get_video_meta = _typed(video.gst_buffer_get_video_meta, _Pointer, _Pointer)
        self.object_get = _typed(base.g_object_get, None, _Pointer, ctypes.c_char_p, _Pointer, _Pointer)
        self.get_uint64 = _typed(quick.gst_structure_get_uint64, _Int, _Pointer, ctypes.c_char_p, _Pointer)
        self.structure_free = _typed(quick.gst_structure_free, None, _Pointer)
        self.free = _typed(quick.g_free, None, _Pointer)


_GST = "libgstreamer-1.0.so.0"  # with GLib's functions, which it is linked to


def _typed(function: Any, result: Any, *arguments: Any) -> Callable[..., Any]:
    function.restype, function.argtypes = result, arguments
    found: Callable[..., Any] = function
    return found


@cache
def _calls() -> _Calls:
    return _Calls()


def _pointer_of(element: Any) -> int:
    """Return the address of a GObject, which its Python object keeps alive."""
    address: int = _capsule_pointer(element.__gpointer__, None)
    return address


_capsule_pointer = _typed(ctypes.PyDLL(None).PyCapsule_GetPointer, _Pointer, ctypes.py_object, ctypes.c_char_p)


class PixelLayout:
    """How pixels lie in buffers that do not say so themselves: a `GstVideo.VideoInfo`, read once."""

    __slots__ = ("height", "offset_bytes", "pixel_bytes", "row_bytes", "width")

    def __init__(self, info: Any) -> None:
        self.width, self.height = int(info.width), int(info.height)
        self.pixel_bytes = int(info.finfo.pixel_stride[0])
        self.row_bytes, self.offset_bytes = int(info.stride[0]), int(info.offset[0])


class Sample:
    """A sample of an appsink; its buffer stays ours, and whole, as long as this or a view of its pixels lives.

    Attributes:
        pts: of its buffer; `NO_TIME` where it has none.
        is_corrupted, is_discont: the flags of its buffer.
        caps_address: of its caps; others may come to lie there once these are released.
    """

    __array_interface__: dict[str, Any]

    def __init__(self, address: int) -> None:
        self._calls = calls = _calls()
        self._address = address
        self._map: _MapInfo | None = None
        self._buffer: int = calls.sample_get_buffer(address)
        self.caps_address: int = calls.sample_get_caps(address)
        fields = _Buffer.from_address(self._buffer)
        self.pts: int = fields.pts
        self.is_corrupted = bool(fields.flags & _FLAG_CORRUPTED)
        self.is_discont = bool(fields.flags & _FLAG_DISCONT)

    def running_time_ns(self) -> int:
        """Return the running time of the buffer; `NO_TIME` outside of its segment."""
        calls = self._calls
        time_ns: int = calls.to_running_time(calls.sample_get_segment(self._address), _FORMAT_TIME, self.pts)
        return time_ns

    def caps_text(self) -> str:
        text = self._calls.caps_to_string(self.caps_address)
        try:
            return ctypes.string_at(text).decode()
        finally:
            self._calls.free(text)

    def view(self, layout: PixelLayout) -> NDArray[np.uint8]:
        """Return the RGB part of an RGB or RGBA buffer without a copy: uint8 (H, W, 3), read-only, rows padded.

        The buffer stays mapped until the returned array and all views of it are gone, so that a reader can never look
        at memory that has been given back, not even when the source is closed meanwhile. To be called once, and last.

        Raises `SourceError` if the buffer cannot be mapped.
        """
        mapped = _MapInfo()
        if not self._calls.buffer_map(self._buffer, ctypes.byref(mapped), _MAP_READ):
            raise SourceError("a decoded frame could not be mapped for reading")
        self._map = mapped
        self._calls.mini_object_ref(self._buffer)
        self._calls.mini_object_unref(self._address)
        self._address = self._buffer  # from now on: a sink that is flushed wants its sample for itself
        row_bytes, offset_bytes = layout.row_bytes, layout.offset_bytes
        meta_address = self._calls.get_video_meta(self._buffer)
        if meta_address is not None:
            meta = _VideoMeta.from_address(meta_address)
            row_bytes, offset_bytes = meta.stride[0], meta.offset[0]
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "data": (mapped.data + offset_bytes, True),
            "shape": (layout.height, layout.width, 3),
            "strides": (row_bytes, layout.pixel_bytes, 1),
        }
        return np.asarray(self)

    def __del__(self) -> None:
        # While the interpreter ends, GStreamer's types may be gone before a view that somebody kept: freeing crashes.
        if sys.is_finalizing():
            return
        if self._map is not None:
            self._calls.buffer_unmap(self._buffer, ctypes.byref(self._map))
        self._calls.mini_object_unref(self._address)


class HeldCaps:
    """Caps that are kept, so that no others come to lie at their `address`."""

    def __init__(self, sample: Sample) -> None:
        self.address = sample.caps_address
        _calls().mini_object_ref(self.address)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            _calls().mini_object_unref(self.address)


class Sink:
    """An appsink; `element` keeps it alive."""

    def __init__(self, element: Any) -> None:
        self._element, self._address = element, _pointer_of(element)
        self._pull = _calls().try_pull_sample

    def pull(self, timeout_ns: int) -> Sample | None:
        """Return the next sample; None when none came in time, at the end, and when the pipeline is stopped."""
        address = self._pull(self._address, timeout_ns)
        return None if address is None else Sample(address)

    @property
    def is_at_end(self) -> bool:
        """Whether the end of the stream has come, and every sample before it was pulled."""
        return bool(self._element.get_property("eos"))


class RunningClock:
    """The running time of a pipeline, asked for once a second and reckoned in between: its clock is the monotonic one.

    A live pipeline is started once; where it is stopped and started, the reckoning is off for a second at most.
    """

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._began_ns: int | None = None
        self._asked_at_ns = 0

    def at_ns(self, monotonic_ns: int) -> int | None:
        """Return the running time at a time of the monotonic clock that is now; None where there is no clock."""
        if self._began_ns is None or monotonic_ns - self._asked_at_ns >= _ASK_EVERY_NS:
            self._began_ns, self._asked_at_ns = self._ask(), monotonic_ns
        return None if self._began_ns is None else monotonic_ns - self._began_ns

    def _ask(self) -> int | None:
        clock = self._pipeline.get_clock()
        if clock is None:
            return None
        return time.monotonic_ns() - int(clock.get_time() - self._pipeline.get_base_time())


class Counter:
    """How many buffers have gone through an identity element; unlike most counts, it outlives the pipeline's stop."""

    def __init__(self, identity: Any) -> None:
        self._identity, self._address = identity, _pointer_of(identity)

    def count(self) -> int:
        calls, stats, count = _calls(), _Pointer(), _Uint64()
        calls.object_get(self._address, b"stats", ctypes.byref(stats), None)
        calls.get_uint64(stats, b"num-buffers", ctypes.byref(count))
        calls.structure_free(stats)
        return count.value
