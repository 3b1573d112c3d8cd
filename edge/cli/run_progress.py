"""How a run goes on, for a person who waits at a terminal for its end."""

from __future__ import annotations

import os
from collections.abc import Callable

from edge.runtime.pipeline.report import RunReport
from edge.types import StreamState

__all__ = ["RunProgress", "is_watched", "ticker"]

_FIRST_S = 2.0
_EVERY_S = 10.0


def is_watched(*, has_messages: bool) -> bool:
    """Return whether a person sees what is said on stderr; not among messages on the same screen, if stdout has any."""
    try:
        return os.isatty(2) and not (has_messages and os.isatty(1))
    except OSError:
        return False


def ticker(say: Callable[[str], None], *, has_messages: bool) -> Callable[[RunReport], None]:
    """Return who takes the accounts of a run that is watched; of another one nobody does."""
    return RunProgress(say).tick if is_watched(has_messages=has_messages) else lambda report: None


class RunProgress:
    """Says a line soon after the start, then every ten seconds: what is up, how many frames, how fast."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._due_s, self._last_s, self._inferred = _FIRST_S, 0.0, 0

    def tick(self, report: RunReport) -> None:
        """Take the account so far."""
        elapsed_s = report.times.elapsed_s
        if elapsed_s < self._due_s:
            return
        fps = (report.inferred - self._inferred) / (elapsed_s - self._last_s)
        self._say(f"{elapsed_s:.0f} s: {_states(report)}; {report.inferred} frames inferred, {fps:.1f} fps")
        self._due_s, self._last_s, self._inferred = elapsed_s + _EVERY_S, elapsed_s, report.inferred


def _states(report: RunReport) -> str:
    """Return how many streams are in each state: `3 of 4 streams up, 1 down`."""
    states = [status.state for status in report.statuses.values()]
    rest = [(state.value, states.count(state)) for state in StreamState if state is not StreamState.UP]
    others = "".join(f", {count} {name}" for name, count in rest if count)
    return f"{states.count(StreamState.UP)} of {len(report.streams)} streams up{others}"
