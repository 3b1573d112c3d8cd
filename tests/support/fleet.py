"""A fleet for tests: targets by number, pushes that obey, a watcher that remembers, a rollout in a thread."""

import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future

from edge.config.targets import Target, Wave
from edge.delivery.outcome import BEGIN, END, Event, OnEvent, Outcome, now
from edge.deploy.fleet.journal import Journal
from edge.deploy.fleet.rollout import FleetResult, Inbox, Interrupt, Order, PushOne, run_fleet


def targets(count: int) -> list[Target]:
    """Return targets d-00, d-01 ..."""
    return [Target(name=f"d-{number:02}", host=f"host-{number:02}") for number in range(count)]


def wave(
    *,
    canary: tuple[str, ...] | None = (),
    steps: Sequence[str | int] = ("100%",),
    max_failed: str | int = "100%",
    soak_s: float = 0,
) -> Wave:
    return Wave(canary=canary, steps=tuple(steps), max_failed=max_failed, soak_s=soak_s)


AT_ONCE = wave()


class Memory:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.said: list[str] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def say(self, text: str) -> None:
        self.said.append(text)

    def results(self) -> dict[str, str]:
        """Return the result of each target, of which there has to be one alone, after which nothing follows."""
        last: dict[str, str] = {}
        for event in self.events:
            assert event.target not in last, f"{event} after the end of its target"
            if event.is_last:
                last[event.target] = event.event
        return last


class Running:
    def __init__(
        self,
        fleet: Sequence[Target],
        push_one: PushOne,
        *,
        order: Wave | None = AT_ONCE,
        max_parallel: int = 16,
        journal: Journal | None = None,
        is_resumed: bool = False,
    ) -> None:
        self.inbox, self.memory = Inbox(), Memory()
        self._ended: Future[FleetResult] = Future()

        def run() -> None:
            try:
                result = run_fleet(
                    fleet,
                    push_one,
                    order=Order(wave=order, max_parallel=max_parallel),
                    watcher=self.memory,
                    inbox=self.inbox,
                    journal=journal,
                    is_resumed=is_resumed,
                )
                self._ended.set_result(result)
            except BaseException as error:
                self._ended.set_exception(error)

        threading.Thread(target=run, daemon=True).start()

    def interrupt(self) -> None:
        self.inbox.put(Interrupt())

    def has_ended(self) -> bool:
        return self._ended.done()

    def join(self, *, timeout_s: float = 15.0) -> FleetResult:
        return self._ended.result(timeout_s)


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
