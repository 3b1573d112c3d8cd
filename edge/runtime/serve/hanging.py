"""Names the threads that have not come back from a call for too long: the watchdog is not fed while there is one."""

from __future__ import annotations

from collections.abc import Sequence

from edge.media.threads import stuck_threads
from edge.runtime.pipeline.loop import InferenceLoop
from edge.runtime.pipeline.puller import Puller

__all__ = ["HANGING_S", "hanging_threads"]

HANGING_S = (
    20.0  # a camera's teardown may take 5 s, the first look at a plugin several; the unit's watchdog bites at 30 s
)


def hanging_threads(pullers: Sequence[Puller], loop: InferenceLoop, *, now_ns: int, limit_s: float) -> tuple[str, ...]:
    """Return the names of threads that hang: in a source for more than `limit_s`, in the engine, in a teardown."""
    since = {one.name: one.in_source_since_ns for one in pullers}
    since[loop.name] = loop.turned_at_ns if loop.is_alive else None
    late = [name for name, at_ns in since.items() if at_ns is not None and now_ns - at_ns > limit_s * 1e9]
    return (*late, *stuck_threads())
