"""Plays a file again and again without a gap, by segment seeks that are issued before the pass has ended.

Demuxers disagree about the running time at which the next pass begins: qtdemux repeats the time of the last frame,
h264parse starts from 0 again. So the time of every pass is set here, to follow the end of the last frame.

tsdemux knows no segment seeks, and falls silent for good when asked for one. Transport streams are read to their end
and then sought back: every frame once, but with a pause for the seek.
"""

from __future__ import annotations

from typing import Any

from edge.errors import SourceError
from edge.media.gstreamer.binding import elements_of, load, on_pad

__all__ = ["GstLoop"]

_PREROLL_S = 3
_WITHOUT_SEGMENTS = ("tsdemux",)


class GstLoop:
    """Seeks `pipeline` back at each end of its segment.

    Attributes:
        discarded: frames that were decoded before the first seek and flushed by it: they could not have been read.
        has_pass_ended: whether the last frame of a pass has left the decoder, and `begin_next_pass` is due.
    """

    def __init__(self, pipeline: Any, where: str) -> None:
        self._gst = load().gst
        self._pipeline = pipeline
        self._where = where
        self._counter = pipeline.get_by_name("decoded")
        self._segment: Any = None
        self._counted_at_seek: int | None = None
        self._end: int | None = None
        self.discarded = 0
        self.has_pass_ended = False
        kinds = self._gst.PadProbeType.EVENT_DOWNSTREAM | self._gst.PadProbeType.EVENT_FLUSH
        on_pad(self._counter.get_static_pad("sink"), kinds, self._on_event)

    def start(self) -> None:
        """Bring the pipeline to PAUSED, and from there to the beginning of its first pass.

        Returns without a seek when the file cannot be read at all: its error is on the bus.

        Raises `SourceError` if the file does not let itself be sought.
        """
        self._pipeline.set_state(self._gst.State.PAUSED)
        result, _, _ = self._pipeline.get_state(_PREROLL_S * self._gst.SECOND)
        if result != self._gst.StateChangeReturn.SUCCESS:
            return
        if self._knows_segments():
            self._seek(self._gst.SeekFlags.FLUSH | self._gst.SeekFlags.SEGMENT)

    def begin_next_pass(self) -> None:
        """Go back to the start; to be called when `has_pass_ended`.

        The SEGMENT_DONE message is no such sign: it may come while the decoder still has frames to give, which wait
        for our reader, and a seek waits for them.

        Raises `SourceError` if a whole pass gave no frame, or the file cannot be read from its start again.
        """
        self.has_pass_ended = False
        self._require_progress()
        self._seek(self._gst.SeekFlags.SEGMENT)

    def restart(self) -> None:
        """Go back after the end of the stream: for demuxers that know no segment seeks; short of a gapless loop.
        Raises `SourceError` as `begin_next_pass`.
        """
        self._require_progress()
        # Otherwise the seek would set the clock back to 0, and a paced sink would sleep through all passes so far.
        self._pipeline.set_start_time(self._gst.CLOCK_TIME_NONE)
        self._end = self._running_time_at_end()  # the flush makes the elements forget it
        flags = self._gst.SeekFlags
        self._seek(flags.FLUSH | flags.SEGMENT if self._knows_segments() else flags.FLUSH)

    def _require_progress(self) -> None:
        counted = self._counted()
        if counted == self._counted_at_seek:
            raise SourceError(f"{self._where}: cannot be looped: reading it from start to end gave no frame")
        self._counted_at_seek = counted

    def _seek(self, flags: Any) -> None:
        start, none = self._gst.SeekType.SET, self._gst.SeekType.NONE
        if not self._pipeline.seek(1.0, self._gst.Format.TIME, flags, start, 0, none, 0):
            raise SourceError(
                f"{self._where}: cannot be looped: it does not let itself be read from its start again",
                is_permanent=True,
            )

    def _knows_segments(self) -> bool:
        factories = (element.get_factory() for element in elements_of(self._pipeline))
        return all(factory is None or factory.get_name() not in _WITHOUT_SEGMENTS for factory in factories)

    def _counted(self) -> int:
        count: int = self._counter.get_property("stats").get_value("num-buffers")
        return count

    def _on_event(self, _pad: Any, info: Any) -> Any:
        event = info.get_event()
        if event.type == self._gst.EventType.FLUSH_STOP and self._counted_at_seek is None:
            self.discarded = self._counted()
            self._segment = None
        elif event.type == self._gst.EventType.SEGMENT_DONE:
            self.has_pass_ended = True
        elif event.type == self._gst.EventType.SEGMENT:
            self._shift(event.parse_segment())
        return self._gst.PadProbeReturn.OK

    def _shift(self, new: Any) -> None:
        """Let the running time of `new` begin where the one before it ended; runs ahead of the event itself."""
        end = self._end if self._end is not None else self._running_time_at_end()
        self._end = None
        offset = 0 if end is None else end - new.base
        self._counter.get_static_pad("src").set_offset(offset)
        self._segment = (new.copy(), offset)

    def _running_time_at_end(self) -> int | None:
        """Return the running time at which the last frame that was counted ends; None before the first pass."""
        time = self._gst.Format.TIME
        is_known, end = self._counter.get_static_pad("src").query_position(time)
        if self._segment is None or not is_known:
            return None
        old, shift = self._segment
        running: int = old.to_running_time(time, old.start + end - old.time) + shift
        return running
