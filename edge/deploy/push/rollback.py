"""A person's way back: to the release before at once, or to one that is kept, judged like a push."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from edge.deadline import Deadline
from edge.delivery.event import OnEvent
from edge.delivery.link import Interrupted, Link
from edge.delivery.options import DeliveryOptions
from edge.delivery.outcome import DONE, INTERRUPTED, Outcome
from edge.delivery.report import Report
from edge.delivery.result import result_of
from edge.delivery.verdict import COMMITTED, elapsed_s, is_on_trial, verdict_of
from edge.errors import DeployError
from edge.transport.channel import Channel
from edge.wire.ending import Nothing
from edge.wire.release import RollbackRequest
from edge.wire.sending import LockRequest
from edge.wire.status import LastSwitch, StateReport
from edge.wire.verbs import LOCK, ROLLBACK, STATUS

__all__ = ["roll_back_target"]

_WATCH_PAUSE_S = 1.0
_ALL_S = 2400.0  # the restart, and as long as the trial is watched
_WATCH_S = 1200.0  # the longest usual trial of a release whose manifest is not here, and a restart


def roll_back_target(
    connect: Callable[[], Channel],
    *,
    target: str,
    to: str | None,
    options: DeliveryOptions,
    on_event: OnEvent,
    stop: threading.Event,
) -> Outcome:
    """Go back to the release before, or to the kept release `to`; return how it ended, soon after `stop` is set."""
    began = time.monotonic()
    report = Report(target, on_event)
    try:
        link = Link(connect(), stop, Deadline.after(_ALL_S if options.deadline_s is None else options.deadline_s))
        try:
            release = _go_back(link, to, options, report, stop)
        finally:
            link.close()
    except Interrupted:
        return Outcome(target=target, release=to, result="interrupted", exit_code=INTERRUPTED)
    except DeployError as error:
        return Outcome(
            target=target,
            release=to,
            result=result_of(error),
            exit_code=error.exit_code,
            code=error.code,
            problem=error.problem,
            hint=error.hint,
            evidence=error.evidence,
            seconds=round(time.monotonic() - began, 3),
        )
    seconds = round(time.monotonic() - began, 3)
    return Outcome(target=target, release=release, result="rolled-back", exit_code=DONE, seconds=seconds)


def _go_back(link: Link, to: str | None, options: DeliveryOptions, report: Report, stop: threading.Event) -> str | None:
    with report.phase("lock"):
        link.ask(LOCK, LockRequest(who=options.who, why="rollback", in_trial=True))
    status = link.ask(STATUS, Nothing())
    # A person goes back above all where something is damaged; the state may be it.
    before = status.state.last if isinstance(status.state, StateReport) else None
    with report.phase("switch"):
        answer = link.ask(ROLLBACK, RollbackRequest(to=to), report.taker("switch"))
    if answer.note:
        report.note("switch", answer.note)
    if answer.on_trial and to is not None:
        _watch(link, to, before, report, stop)
    return answer.release


def _watch(link: Link, release: str, before: LastSwitch | None, report: Report, stop: threading.Event) -> None:
    deadline = Deadline.after(_WATCH_S)
    with report.phase("trial"):
        while (verdict := verdict_of(status := link.ask(STATUS, Nothing()), release, before)) != COMMITTED:
            if isinstance(verdict, DeployError):
                raise verdict
            if not is_on_trial(status, release) or deadline.is_over:
                raise DeployError(
                    "trial.undecided",
                    f"the device has not judged release {release}",
                    hint="look at edge-deploy status and edge-deploy logs",
                )
            report.far("trial", elapsed_s(status), None)
            if stop.wait(_WATCH_PAUSE_S):
                raise Interrupted
