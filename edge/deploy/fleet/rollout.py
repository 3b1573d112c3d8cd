"""The driver of a fleet: wave after wave, at most so many at once, until all are done or enough have failed.

One thread for each target at work: a push spends its time waiting for a pipe.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from edge.config.targets import DEFAULT_MAX_PARALLEL, Part, Target, Wave, is_more_than, part_of
from edge.deadline import Deadline
from edge.delivery.outcome import DONE, INTERRUPTED, PLANNED, PROGRESS, Event, OnEvent, Outcome, last_event
from edge.delivery.verdict import failed_by, interrupted
from edge.deploy.fleet.journal import Journal
from edge.errors import EXIT_CODE_OF, DeployError, EdgeError

__all__ = ["FleetResult", "Inbox", "Interrupt", "Order", "PushOne", "Watcher", "run_fleet"]

_PROGRESS_S = 0.1  # more often than this cannot be seen
_logger = logging.getLogger(__name__)


_MAX_TRIED = 3  # who stands in for a canary that is not there; with the network down, a whole fleet is not waited for
_AWAY = ("unreachable", "late")  # nothing is known of the release there
_NO_FAILURES = (*_AWAY, "interrupted", "planned", "detached")


class Waves:
    """Splits targets into waves: canaries, then by the steps; who comes next depends on what became of those before.

    `is_proven`: some target serves this release already, so no canary has to go first unless it is named.
    """

    def __init__(self, targets: Sequence[Target], wave: Wave, *, is_proven: bool = False) -> None:
        named = set(wave.canary or ())
        self._canaries = [target for target in targets if target.name in named]
        self._rest = [target for target in targets if target.name not in named]
        self._stands_in = not self._canaries and wave.canary != () and not is_proven
        self._steps = list(wave.steps)
        self._tried: list[Target] = []
        self._begun = 0

    def next(self, outcomes: Mapping[str, Outcome]) -> Sequence[Target]:
        """Return the next wave, empty at the end; raise DeployError `fleet.canary` if no canary serves the release."""
        if not self._tried and self._canaries:
            self._tried = self._canaries
            return self._tried
        if self._stands_in and not self._tried:
            return self._one_more()
        if self._tried and not any(outcomes[target.name].is_done for target in self._tried):
            return self._instead(outcomes)
        return self._step()

    def _instead(self, outcomes: Mapping[str, Outcome]) -> Sequence[Target]:
        results = [outcomes[target.name].result for target in self._tried]
        if self._stands_in and set(results) <= set(_AWAY) and len(results) < _MAX_TRIED:
            return self._one_more()
        if not self._rest:
            return ()
        raise DeployError(
            "fleet.canary",
            f"no canary serves the release: {', '.join(_spelled(self._tried, outcomes))}",
            hint="mend it, or name another target as canary in the inventory, then push again with --resume",
        )

    def _one_more(self) -> Sequence[Target]:
        one, self._rest = self._rest[:1], self._rest[1:]
        self._tried += one
        return one

    def _step(self) -> Sequence[Target]:
        while self._steps:
            until = part_of(self._steps.pop(0), len(self._rest))
            if until > self._begun:
                wave, self._begun = self._rest[self._begun : until], until
                return wave
        return ()


def _spelled(targets: Sequence[Target], outcomes: Mapping[str, Outcome]) -> list[str]:
    return [f"{target.name} {outcomes[target.name].result}" for target in targets]


def has_failed(outcome: Outcome) -> bool:
    """Return whether a target speaks against going on; one that was not reached, or not let finish, says nothing."""
    return not outcome.is_done and outcome.result not in _NO_FAILURES


def check_limit(outcomes: Mapping[str, Outcome], *, begun: int, most: Part) -> None:
    """Raise DeployError `fleet.stopped` if too many of the `begun` targets (those of all waves so far) have failed.

    A share is of the whole wave, so that the first failure of many does not look like all of them.
    """
    failed = sum(has_failed(outcome) for outcome in outcomes.values())
    attempted = begun - sum(outcome.result in _AWAY for outcome in outcomes.values())
    if is_more_than(most, failed, attempted):
        raise DeployError(
            "fleet.stopped",
            f"{failed} of {attempted} targets failed, at most {most} may",
            hint="mend them or the release; --resume goes on with those that are not done",
            evidence={"failed": failed, "attempted": attempted, "max_failed": str(most)},
        )


_RESUME = "--resume goes on with it"
_CLOSING_S = 0.8  # for all connections to be closed, once Ctrl-C was pressed twice


class PushOne(Protocol):
    """Does all there is to do for one target, tells `on_event` of it, and returns how it ended; raises nothing.

    It returns within a second once `stop` is set: it closes the connection, and the device ends or undoes on its own.
    Its child processes are in a session of their own, so that Ctrl-C at the terminal reaches the caller alone.
    """

    def __call__(self, target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome: ...


class Interrupt:
    """Somebody wants it to end: the first one begins nothing new, the second one ends what runs."""


# Unlike other queues, this one may be put into by a signal handler in the midst of a get.
Inbox = queue.SimpleQueue[Event | Outcome | Interrupt]
"""News from the threads of targets, and Ctrl-C, for one reader; an outcome: the thread of its target has ended."""


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

    With a journal each end is on disk before it is shown; a resumed rollout leaves out the targets that are done there.
    An interrupt in the inbox begins no more targets, a second one closes all connections within a second.
    Raises DeployError: `request.resume`, if there is nothing to resume; `request.journal`, before a target is touched.
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
        self._push_one, self._order, self._watcher = push_one, order, watcher
        self._inbox, self._journal = inbox, journal
        self._at_once = threading.Event()  # all are to close their connections and return
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
                threading.Thread(target=self._work, args=(target,), name=f"push-{target.name}", daemon=True).start()
            self._take_one(until=self._closing)

    def _work(self, target: Target) -> None:
        """Push to a target; what is said, and the end, goes to the inbox."""
        began_s, next_s = time.monotonic(), 0.0

        def relay(event: Event) -> None:
            """Hand events on, progress at most ten times a second, so that a fast link does not flood the driver."""
            nonlocal next_s
            if event.event == PROGRESS:
                if time.monotonic() < next_s:
                    return
                next_s = time.monotonic() + _PROGRESS_S
            self._inbox.put(event)

        try:
            outcome = self._push_one(target, relay, self._at_once)
        except DeployError as error:
            outcome = failed_by(error, target=target.name, result="failed")
        except EdgeError as error:
            outcome = _failed(target, error)
        except Exception as error:  # the border of a thread: what is raised here would be lost, and the driver wait on
            _logger.exception("push failed target=%s", target.name)
            problem = EdgeError(f"{type(error).__name__}: {error}", hint="run again with -v and report it")
            outcome = _failed(target, problem)
        self._inbox.put(replace(outcome, target=target.name, seconds=outcome.seconds or time.monotonic() - began_s))

    def _soak(self, soak_s: float) -> None:
        until = Deadline.after(soak_s)
        if soak_s:
            self._watcher.say(f"the next wave begins in {soak_s:g} s")
        while self._why_not is None and not until.is_over:
            self._take_one(until=until)

    def _take_one(self, *, until: Deadline | None) -> None:
        try:
            item = self._inbox.get(timeout=None if until is None else until.left_s)
        except queue.Empty:
            if self._closing is not None:
                self._abandon()
            return
        match item:
            case Event() as event:
                if event.target in self._running and not event.is_last:
                    self._watcher.on_event(event)
            case Outcome() as outcome:
                if outcome.target in self._running:
                    self._end(self._running.pop(outcome.target), outcome, is_begun=True)
                    self._judge()
            case Interrupt():
                self._interrupt()

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
            self._at_once.set()
            self._closing = Deadline.after(_CLOSING_S)

    def _abandon(self) -> None:
        for name, target in list(self._running.items()):
            del self._running[name]
            problem = "its connection did not close in time; it is closed with this process"
            self._end(target, interrupted(name, problem, hint=_RESUME), is_begun=True)

    def _not_begun(self, target: Target) -> Outcome:
        error = self._why_not
        if self._interrupts or error is None:
            return interrupted(target.name, "not begun: interrupted", hint=_RESUME)
        return Outcome(
            target=target.name,
            release=None,
            result="refused",
            exit_code=EXIT_CODE_OF["fleet"],
            code=error.code,
            problem=f"not begun: {error.problem}",
            hint=error.hint,
        )


def _failed(target: Target, error: EdgeError) -> Outcome:
    return Outcome(
        target=target.name,
        release=None,
        result="failed",
        exit_code=error.exit_code,
        code="fleet.internal",
        problem=error.problem,
        hint=error.hint,
    )


def _listed(targets: Sequence[Target]) -> str:
    names = [target.name for target in targets[:4]]
    more = len(targets) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
