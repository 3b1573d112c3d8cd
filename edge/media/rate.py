"""The time of a live stream, and the exact limit of `max_fps`, for every kind of source, reckoned on such times.

And the lower limits, caps, of streams while the machine cannot keep up: ordered by one thread, obeyed by another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Cap", "Caps", "RateLimit", "StreamTime"]

# No ratio of frame rates that people use makes a frame exactly that early: on the edge, rounding would decide.
_EARLY = 0.2236
_JUMP_NS = 3_000_000_000  # after a hiccup a camera's times catch up with arrival; they do not run so far ahead of it


class StreamTime:
    """Goes by the times of the frames; where these stand still, go back or jump ahead, it goes on as frames arrive."""

    def __init__(self) -> None:
        self._begun: tuple[int, int, int] | None = None  # time of a frame, its arrival, time of the stream
        self._frame_ns = -1
        self._last_ns = self._last_arrived_ns = -1

    def of(self, frame_ns: int, *, arrived_ns: int) -> tuple[int, bool]:
        """Return the time of the next frame, later than the one before, and whether the frame's own was used."""
        frame_begun_ns, arrived_begun_ns, begun_ns = self._begun = self._begun or (frame_ns, arrived_ns, frame_ns)
        time_ns = begun_ns + frame_ns - frame_begun_ns
        is_own = self._last_ns < time_ns <= begun_ns + arrived_ns - arrived_begun_ns + _JUMP_NS
        if not is_own:
            time_ns = self._last_ns + max(1, arrived_ns - self._last_arrived_ns)
            if frame_ns != self._frame_ns:  # of frames of one time the next time is reckoned from the first
                self._begun = frame_ns, arrived_ns, time_ns
        self._frame_ns, self._last_ns, self._last_arrived_ns = frame_ns, time_ns, arrived_ns
        return time_ns, is_own


class RateLimit:
    """Decides which frames to keep so that their rate stays at or below `max_fps`, also when that is a fraction.

    Each kept frame moves the due time on by exactly one period, so the rate is right in the long run. A frame may be
    a good fifth of a period early: network cameras deliver unevenly, and without that tolerance a 15 fps camera under a
    limit of 15 would lose every frame that comes a little too soon.
    """

    def __init__(self, max_fps: float) -> None:
        if max_fps <= 0:
            raise ValueError(f"max_fps is positive, got {max_fps}")
        self._period_ns = 1e9 / max_fps
        self._due_ns: float | None = None

    def admits(self, pts_ns: int) -> bool:
        """Return whether to keep the frame of this time; times that jump back begin a new reckoning."""
        if self._due_ns is None or pts_ns < self._due_ns - 2 * self._period_ns:
            self._due_ns = float(pts_ns)
        if pts_ns < self._due_ns - self._period_ns * _EARLY:
            return False
        # A frame that is late keeps its due time, or 25 fps under a limit of 15 would become 12.5; but a pause is not
        # made up for by a burst. Behind another limit frames come a whole period late, which is no pause.
        is_after_pause = pts_ns - self._due_ns >= 1.5 * self._period_ns
        self._due_ns = (pts_ns if is_after_pause else self._due_ns) + self._period_ns
        return True


@dataclass(slots=True)
class Cap:
    """The cap of one stream, over all its connections: frames above it are dropped behind the decoder; None: no cap."""

    max_fps: float | None = None


@dataclass(slots=True)
class Caps:
    """Those of all streams, made when first asked for."""

    _all: dict[str, Cap] = field(default_factory=dict)

    def of(self, stream: str) -> Cap:
        return self._all.setdefault(stream, Cap())

    def in_force(self) -> Mapping[str, float]:
        """Return the frames per second of streams that have a cap."""
        caps = {stream: cap.max_fps for stream, cap in list(self._all.items())}
        return {stream: max_fps for stream, max_fps in caps.items() if max_fps is not None}
