"""A fleet for tests: targets by number, a watcher that remembers, a rollout in a thread of its own."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future

from edge.config.targets import Target, Wave
from edge.delivery.outcome import Event
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
    """Return an order of a rollout, as it is written in an inventory."""
    return Wave(canary=canary, steps=tuple(steps), max_failed=max_failed, soak_s=soak_s)


AT_ONCE = wave()


class Memory:
    """Remembers all that was shown."""

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
    """A rollout in a thread, so that a test can watch and interrupt it."""

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
        """Return how it ended, within the time."""
        return self._ended.result(timeout_s)
