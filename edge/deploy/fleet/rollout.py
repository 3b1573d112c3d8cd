"""The driver of a fleet: wave after wave, at most so many at once, until all are done or it is better to stop."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edge.config.targets import DEFAULT_MAX_PARALLEL, Target, Wave
from edge.deadline import Deadline
from edge.delivery.event import Event
from edge.delivery.outcome import DONE, INTERRUPTED, PLANNED, Outcome, last_event
from edge.deploy.fleet.inbox import Finished, Inbox, Interrupt
from edge.deploy.fleet.journal import Journal
from edge.deploy.fleet.push_one import PushOne
from edge.deploy.fleet.waves import Waves, check_limit
from edge.deploy.fleet.workers import Workers
from edge.errors import EXIT_CODE_OF, DeployError

__all__ = ["FleetResult", "Order", "Watcher", "run_fleet"]

_CLOSING_S = 0.8  # for all connections to be closed, once Ctrl-C was pressed twice


class Watcher(Protocol):
    """Shows what happens; it is called by one thread, and raises nothing."""

    def on_event(self, event: Event) -> None:
        """Take an event of a target; exactly one of each target is its last."""
        ...

    def say(self, text: str) -> None:
        """Take a sentence about the fleet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How to go about it. `wave` None: all at once and to the end, for what changes nothing, such as a plan."""

    wave: Wave | None = None
    max_parallel: int = DEFAULT_MAX_PARALLEL

    def __post_init__(self) -> None:
        if self.max_parallel < 1:
            raise ValueError(f"at most {self.max_parallel} at once would never begin")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetResult:
    """How each target ended, in the order given; `done_before` are those that a resumed rollout did not touch."""

    outcomes: tuple[Outcome, ...]
    done_before: int = 0

    @property
    def exit_code(self) -> int:
        """0 all done, 10 all done or planned, 130 interrupted, 11 some failed; of one target alone its own."""
        codes = {outcome.exit_code for outcome in self.outcomes} - {DONE}
        if INTERRUPTED in codes:
            return INTERRUPTED
        if codes <= {PLANNED} or len(self.outcomes) + self.done_before == 1:
            return codes.pop() if codes else DONE
        return EXIT_CODE_OF["fleet"]


def run_fleet(
    targets: Sequence[Target],
    push_one: PushOne,
    *,
    order: Order,
    watcher: Watcher,
    inbox: Inbox,
    journal: Journal | None = None,
    is_resumed: bool = False,
) -> FleetResult:
    """Push to all targets, whose names differ; return when each has ended, or is known not to be begun.

    With a journal each end is on disk before it is shown; a resumed rollout leaves out who is done there. An interrupt
    in the inbox begins no more targets, a second one closes all connections within a second.

    Raises:
        DeployError: `request.resume`, if there is nothing to resume; `request.journal`, before a target is touched.
    """
    if is_resumed and (journal is None or not journal.has_begun):
        raise DeployError(
            "request.resume", "there was no rollout of this release to go on with", hint="leave out --resume"
        )
    left = [target for target in targets if not (is_resumed and journal is not None and journal.is_done(target))]
    if journal is not None:
        journal.begin(left, is_resumed=is_resumed)
    done_before = len(targets) - len(left)
    if done_before:
        watcher.say(f"{done_before} of {len(targets)} targets are done already, {len(left)} are left")
    driver = _Driver(push_one, order, watcher, inbox, journal)
    return FleetResult(outcomes=driver.run(left, is_proven=done_before > 0), done_before=done_before)


class _Driver:
    def __init__(
        self, push_one: PushOne, order: Order, watcher: Watcher, inbox: Inbox, journal: Journal | None
    ) -> None:
        self._order, self._watcher, self._inbox, self._journal = order, watcher, inbox, journal
        self._workers = Workers(push_one, inbox)
        self._running: dict[str, Target] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._count = self._begun = 0
        self._why_not: DeployError | None = None  # why no more targets are begun
        self._interrupts = 0
        self._closing: Deadline | None = None

    def run(self, targets: Sequence[Target], *, is_proven: bool) -> tuple[Outcome, ...]:
        wave, self._count = self._order.wave, len(targets)
        if wave is None:
            self._run_wave(targets)
        else:
            self._run_waves(Waves(targets, wave, is_proven=is_proven), wave.soak_s)
        for target in targets:
            if target.name not in self._outcomes:
                self._end(target, self._not_begun(target), is_begun=False)
        return tuple(self._outcomes[target.name] for target in targets)

    def _run_waves(self, waves: Waves, soak_s: float) -> None:
        while self._why_not is None:
            try:
                wave = waves.next(self._outcomes)
            except DeployError as error:
                self._stop(error)
                return
            if not wave:
                return
            if any(outcome.is_done for outcome in self._outcomes.values()):
                self._soak(soak_s)
            if self._why_not is None:
                if self._count > 1:
                    self._watcher.say(f"wave of {len(wave)}: {_listed(wave)}")
                self._run_wave(wave)

    def _run_wave(self, wave: Sequence[Target]) -> None:
        waiting = deque(wave)
        self._begun += len(wave)
        while self._running or (waiting and self._why_not is None):
            while waiting and self._why_not is None and len(self._running) < self._order.max_parallel:
                target = waiting.popleft()
                self._running[target.name] = target
                self._workers.start(target)
            self._take_one(until=self._closing)

    def _soak(self, soak_s: float) -> None:
        until = Deadline.after(soak_s)
        if soak_s:
            self._watcher.say(f"the next wave begins in {soak_s:g} s")
        while self._why_not is None and not until.is_over:
            self._take_one(until=until)

    def _take_one(self, *, until: Deadline | None) -> None:
        match self._inbox.get(until=until):
            case Event() as event:
                if event.target in self._running and not event.is_last:
                    self._watcher.on_event(event)
            case Finished(outcome):
                if outcome.target in self._running:
                    self._end(self._running.pop(outcome.target), outcome, is_begun=True)
                    self._judge()
            case Interrupt():
                self._interrupt()
            case None if self._closing is not None:
                self._abandon()

    def _end(self, target: Target, outcome: Outcome, *, is_begun: bool) -> None:
        self._outcomes[target.name] = outcome
        if is_begun and self._journal is not None:
            try:
                self._journal.note(target, outcome)
            except DeployError as error:
                self._stop(error)
        self._watcher.on_event(last_event(outcome))

    def _judge(self) -> None:
        if self._order.wave is None:
            return
        try:
            check_limit(self._outcomes, begun=self._begun, most=self._order.wave.max_failed)
        except DeployError as error:
            self._stop(error)

    def _stop(self, error: DeployError) -> None:
        if self._why_not is None:
            self._why_not = error
            self._watcher.say(f"no more targets: {error}")

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            self._why_not = DeployError("fleet.interrupted", "interrupted", hint="--resume goes on")
            names = _listed(list(self._running.values()))
            self._watcher.say(
                f"no more targets; still at work: {names} (Ctrl-C again closes the connections)" if names else "ending"
            )
        elif self._closing is None:
            self._watcher.say("closing all connections; each device ends or undoes on its own")
            self._workers.end_at_once()
            self._closing = Deadline.after(_CLOSING_S)

    def _abandon(self) -> None:
        for name, target in list(self._running.items()):
            del self._running[name]
            problem = "its connection did not close in time; it is closed with this process"
            self._end(target, _interrupted(name, problem), is_begun=True)

    def _not_begun(self, target: Target) -> Outcome:
        error = self._why_not
        if self._interrupts or error is None:
            return _interrupted(target.name, "not begun: interrupted")
        return Outcome(
            target=target.name,
            release=None,
            result="refused",
            exit_code=EXIT_CODE_OF["fleet"],
            code=error.code,
            problem=f"not begun: {error.problem}",
            hint=error.hint,
        )


def _interrupted(name: str, problem: str) -> Outcome:
    return Outcome(
        target=name,
        release=None,
        result="interrupted",
        exit_code=INTERRUPTED,
        code="fleet.interrupted",
        problem=problem,
        hint="--resume goes on with it",
    )


def _listed(targets: Sequence[Target]) -> str:
    names = [target.name for target in targets[:4]]
    more = len(targets) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
