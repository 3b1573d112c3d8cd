"""The events of one target: when a phase begins, how far it is, when it ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from edge.delivery.event import BEGIN, END, NOTE, PROGRESS, Event, OnEvent, now
from edge.delivery.link import OnProgress
from edge.wire.ending import Progress

__all__ = ["Report"]


class Report:
    """Tells `on_event` of a push; `moved_at` is the monotonic time at which it last came any further, in seconds."""

    def __init__(self, target: str, on_event: OnEvent) -> None:
        self._target, self._on_event = target, on_event
        self.moved_at = time.monotonic()

    @contextlib.contextmanager
    def phase(self, name: str, *, total: int | None = None) -> Iterator[None]:
        """Tell when a phase begins and, if it does, ends well."""
        self._say(name, BEGIN, total=total)
        yield
        self.moved_at = time.monotonic()
        self._say(name, END, bytes=total, total=total)  # whatever of its progress was passed over on the way

    def note(self, phase: str, text: str, *, code: str | None = None) -> None:
        """Tell a person something."""
        self._say(phase, NOTE, code=code, hint=text)

    def far(self, phase: str, done: int, total: int | None) -> None:
        """Tell how far a phase is."""
        self._say(phase, PROGRESS, bytes=max(0, done), total=total)

    def taker(self, phase: str, *, before: int = 0, total: int | None = None) -> OnProgress:
        """Return what tells a device's progress as one of `phase`, `before` of whose `total` were done already."""

        def take(progress: Progress) -> None:
            self.moved_at = time.monotonic()
            of = int(progress.total) if total is None and progress.total is not None else total
            self.far(phase, before + int(progress.done), of)

        return take

    def _say(self, phase: str, event: str, **values: Any) -> None:
        self._on_event(Event(ts=now(), target=self._target, phase=phase, event=event, **values))
