"""Bounds what waits in front of a decoder that is slower than its camera: pictures are left out up to a key frame.

Packets that came over TCP are all there, and after a pause of the process a decoder catches up with them; what is not
fresh any more is dropped behind it. Only where it falls behind for good would they pile up, in the jitter buffer.

Drops frames behind the decoder, by time, while a cap is in force.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from edge.media.gstreamer.binding import load, on_pad
from edge.media.gstreamer.clean import LOSS, WHOLE, tell
from edge.media.rate import RateLimit

__all__ = ["Backlog", "GstCap"]

_MOST_NS = 2_000_000_000
_FRESH_NS = 1_000_000_000


class Backlog:
    """Of one depayloader: `look` is called by the reader, pictures are measured where they pass.

    Args:
        latency_ms: how late packets are by the order of the pipeline.
        running_ns: gives the running time of the pipeline, at a time of the monotonic clock.
    """

    def __init__(self, depay: Any, *, latency_ms: int, running_ns: Callable[[int], int | None]) -> None:
        self._gst = load().gst
        self._pad = depay.get_static_pad("src")
        self._latency_ns = latency_ms * 1_000_000
        self._running_ns = running_ns
        self._is_measuring = self._is_skipping = False
        self.skipped = 0

    def look(self) -> None:
        """Measure the next picture. A camera may send one in many seconds: the last one tells nothing of now."""
        if not self._is_measuring:
            self._is_measuring = True
            on_pad(self._pad, self._gst.PadProbeType.BUFFER, self._on_picture)

    def _on_picture(self, pad: Any, info: Any) -> Any:
        picture = info.get_buffer()
        behind_ns = self._behind_ns(picture.pts)
        if self._is_skipping:
            is_start = not picture.has_flags(self._gst.BufferFlags.DELTA_UNIT) and behind_ns <= _FRESH_NS
        else:
            is_start = behind_ns <= _MOST_NS
        if not is_start:
            if not self._is_skipping:
                tell(pad, LOSS)
            self._is_skipping = True
            self.skipped += 1
            return self._gst.PadProbeReturn.DROP
        if self._is_skipping:
            tell(pad, WHOLE)
        self._is_measuring = self._is_skipping = False
        return self._gst.PadProbeReturn.REMOVE

    def _behind_ns(self, pts: int) -> int:
        running_ns = self._running_ns(time.monotonic_ns())
        if running_ns is None or pts == self._gst.CLOCK_TIME_NONE:
            return 0
        return running_ns - pts - self._latency_ns


class GstCap:
    """Used by the reading thread; the probe runs in a streaming thread, and is there only while a cap is in force."""

    def __init__(self, decoded: Any) -> None:
        self._gst = load().gst
        self._pad = decoded.get_static_pad("src")
        self._limit: RateLimit | None = None
        self._probe: int | None = None
        self.max_fps: float | None = None
        self.capped = 0

    def set(self, max_fps: float | None) -> None:
        """Raises `ValueError` if it is not positive."""
        self._limit = None if max_fps is None else RateLimit(max_fps)
        if self._limit is not None and self._probe is None:
            self._probe = on_pad(self._pad, self._gst.PadProbeType.BUFFER, self._on_decoded)
        elif self._limit is None and self._probe is not None:
            self._pad.remove_probe(self._probe)
            self._probe = None
        self.max_fps = max_fps

    def _on_decoded(self, _pad: Any, info: Any) -> Any:
        limit, pts = self._limit, info.get_buffer().pts
        if limit is None or pts == self._gst.CLOCK_TIME_NONE or limit.admits(pts):
            return self._gst.PadProbeReturn.OK
        self.capped += 1
        return self._gst.PadProbeReturn.DROP
