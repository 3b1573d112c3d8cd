"""A push that does as it is told, in this process: succeed, fail, wait for a word, hang until it is stopped."""

import threading
from collections import defaultdict

from edge.config.targets import Target
from edge.delivery.outcome import BEGIN, END, Event, OnEvent, Outcome, now

_FAILURES = {
    "unreachable": ("unreachable", 3, "transfer.unreachable"),
    "late": ("late", 3, "transfer.deadline"),
    "unhealthy": ("rolled-back", 8, "trial.frames.none"),
    "full": ("refused", 6, "preflight.space"),
    "locked": ("refused", 5, "lock.held"),
    "broken": ("failed", 7, "build.failed"),
}


class ScriptedPush:
    """`orders` by target name: one of the failures, "wait" (until released), "hang" (until stopped), "deaf" (for ever),
    "raise", "planned"; without an order it commits. Observes who began, in which order, and how many at once.
    """

    def __init__(self, orders: dict[str, str] | None = None) -> None:
        self.orders = orders or {}
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.most_at_once = 0
        self.running: set[str] = set()
        self.begun_when: dict[str, tuple[str, ...]] = {}
        self._released: dict[str, threading.Event] = defaultdict(threading.Event)
        self._lock = threading.Lock()

    def release(self, name: str) -> None:
        """Let a waiting one go on."""
        self._released[name].set()

    def __call__(self, target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        with self._lock:
            self.begun.append(target.name)
            self.begun_when[target.name] = tuple(self.ended)
            self.running.add(target.name)
            self.most_at_once = max(self.most_at_once, len(self.running))
        try:
            return self._obey(target, on_event, stop)
        finally:
            with self._lock:
                self.running.discard(target.name)
                self.ended.append(target.name)

    def _obey(self, target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        order = self.orders.get(target.name, "commit")
        on_event(Event(ts=now(), target=target.name, phase="connect", event=BEGIN))
        if order == "raise":
            raise RuntimeError("a bug of ours")
        if order == "deaf":
            threading.Event().wait()
        if order == "hang":
            assert stop.wait(30), "nobody stopped it"
            return _outcome(target, "interrupted", 130, "transfer.closed")
        if order == "wait":
            assert self._released[target.name].wait(30), "nobody released it"
        if order in _FAILURES:
            return _outcome(target, *_FAILURES[order])
        on_event(Event(ts=now(), target=target.name, phase="connect", event=END))
        if order == "planned":
            return _outcome(target, "planned", 10, None)
        return _outcome(target, "committed", 0, None)


def _outcome(target: Target, result: str, exit_code: int, code: str | None) -> Outcome:
    return Outcome(target=target.name, release="3f9a1c07b2de", result=result, exit_code=exit_code, code=code)
