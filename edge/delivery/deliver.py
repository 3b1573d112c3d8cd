"""A delivery to one target: each step once, again after a lost connection, and watched to its verdict."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from edge.codec import encode
from edge.deadline import Deadline
from edge.delivery.deliverable import Deliverable, DeliveryOptions, golden_words, plan_words, silent_words, upload
from edge.delivery.link import LATE, Interrupted, Link, Reach, is_lost
from edge.delivery.outcome import DONE, INTERRUPTED, PLANNED, OnEvent, Outcome, Report, Result
from edge.delivery.verdict import (
    COMMITTED,
    elapsed_s,
    failed_by,
    is_on_trial,
    result_of,
    serves_current,
    state_of,
    verdict_of,
)
from edge.errors import DeployError
from edge.reports import Facts
from edge.transport.channel import Channel
from edge.wire.peer import Nothing, Problem, error_of
from edge.wire.release import (
    BuildRequest,
    ConfirmRequest,
    LockRequest,
    OfferRequest,
    PlanAnswer,
    StageRequest,
    SwitchRequest,
)
from edge.wire.verbs import BUILD, CONFIRM, GC, LOCK, PLAN, PUT_MANIFEST, STAGE, STATUS, SWITCH, StatusAnswer

__all__ = ["Judge", "deliver"]

_OLD_AGENT_S = 35.0  # an agent whose client vanished without a word holds its lock for 30 s
_LOCK_PAUSE_S = 0.5
_WATCH_PAUSE_S = 1.0
_RETURN_S = 120.0  # the start-up deadline of the service
_ORPHAN_S = 20  # after so long a judge is at work, unless the agent that was to start it was killed
_REST_S = 2 * 3600.0  # build and golden frames as a device allows them, twice, and some
_SLOWEST_BYTES_PER_S = 64 * 1024
_MOST_SWITCHES = 3  # a request to switch is lost with a connection; a device that says so again and again is not well
_SETTLED_S = 30.0  # in a trial: what is not well for as long as a service takes to start is the usual
_MOST_ROUNDS = 3  # a collection of garbage may take what was fetched without the lock
_VERDICT_GRACE_S = 300.0  # a restart of the service, or of the device, on top of the trial's own deadline


Judge = Callable[[Facts], Sequence[str]]
"""Returns what a person has to know; DeployError `preflight.*` where the release is not to be sent."""


def deliver(
    bundle: Deliverable,
    connect: Callable[[], Channel],
    *,
    target: str,
    options: DeliveryOptions,
    on_event: OnEvent,
    stop: threading.Event,
    judge: Judge = lambda facts: (),
) -> Outcome:
    """Bring `bundle` to a device over connections that `connect` opens; return how it ended, soon after `stop` is set.

    A connection that is lost before the switch is made again, and the delivery goes on where it was; after the switch
    the device goes on alone, and the verdict is read once it can be reached again. `judge` is asked, before anything is
    sent, what speaks against the release on a device of such facts.
    """
    began = time.monotonic()
    within_s = _usual_s(bundle, options) if options.deadline_s is None else options.deadline_s
    reach = Reach(connect, stop, Deadline.after(within_s))
    work = _Delivery(bundle, reach, Report(target, on_event), options, stop, judge)
    try:
        outcome = work.until_done()
    except Interrupted:
        outcome = work.ended("interrupted", exit_code=INTERRUPTED)
    except DeployError as problem:
        outcome = failed_by(problem, target=target, release=bundle.manifest.release)
    finally:
        work.reach.close()
    return replace(outcome, bytes_sent=work.reach.bytes_sent, seconds=round(time.monotonic() - began, 3))


class _Delivery:
    def __init__(
        self,
        bundle: Deliverable,
        reach: Reach,
        report: Report,
        options: DeliveryOptions,
        stop: threading.Event,
        judge: Judge,
    ) -> None:
        self._bundle, self.reach, self._report, self._options, self._stop = bundle, reach, report, options, stop
        self._judge = judge
        self._release = bundle.manifest.release
        self._plan: PlanAnswer | None = None  # the first one: what was before this push
        self._switches = self._rounds = 0
        self._is_switched = False  # as far as we know: the request was sent

    def ended(self, result: Result, *, plan: PlanAnswer | None = None, exit_code: int = DONE) -> Outcome:
        told = {} if plan is None else encode(plan)
        evidence = {key: told[key] for key in ("current", "bytes", "missing", "engine") if key in told}
        return Outcome(
            target=self._report.target, release=self._release, result=result, exit_code=exit_code, evidence=evidence
        )

    def until_done(self) -> Outcome:
        while True:
            try:
                return self._watch() if self._is_switched else self._push()
            except DeployError as error:
                if error.code == LATE and self._is_switched:
                    raise _undecided(self._release, self._patience_s) from error
                if not is_lost(error) or self.reach.count == 0:
                    raise
                self._report.note("connect", f"{error.problem}; trying to reach it again", code=error.code)
                self.reach.again(error, until=Deadline(self._report.moved_at + self._patience_s))

    @property
    def _patience_s(self) -> float:
        # After the switch the device goes on alone, perhaps through a reboot; there is nothing to lose by waiting.
        deadline_s = self._bundle.manifest.health.deadline_s + _VERDICT_GRACE_S
        return deadline_s if self._is_switched else self._options.reconnect_s

    def _push(self) -> Outcome:
        with self._report.phase("connect"):
            link = self.reach.link()
        plan = self._ask_plan(link)
        if plan.is_unchanged:
            return self.ended("unchanged", plan=plan)
        for words in self._judge(link.hello.facts):
            self._report.note("plan", words, code="preflight.capacity")
        if self._options.is_plan:
            return self.ended("planned", plan=plan, exit_code=PLANNED)
        is_fetched = self._options.is_fetched
        if is_fetched:
            self._send(link)
        if self._take_lock(link) or is_fetched:
            # The holder of the lock before us may have brought the same release, or seen it fail.
            self._plan = self._plan if self._switches else None
            plan = self._ask_plan(link)
            if plan.is_unchanged:
                return self.ended("unchanged", plan=plan)
        if is_fetched:
            link.ask(PUT_MANIFEST, self._offer)
        else:
            self._send(link)
        if not self._is_staged(link):
            return self._push()
        if plan.current == self._release and (plan := self._ask_plan(link)).is_unchanged:
            return self.ended("unchanged", plan=plan)  # what serves was signed again: that is kept, without a trial
        return self._try(link)

    def _try(self, link: Link) -> Outcome:
        self._build(link)
        if self._options.detach:
            return self.ended("detached")
        self._switch(link)
        return self._watch()

    def _ask_plan(self, link: Link) -> PlanAnswer:
        """DeployError, if the device refuses the release."""
        with self._report.phase("plan"):
            plan = link.ask(PLAN, self._offer)
        self._plan = self._plan or plan
        self._report.note("plan", plan_words(plan, self._bundle.manifest))
        if not plan.is_unchanged:
            _raise_first(plan.refusals)
        return plan

    @property
    def _offer(self) -> OfferRequest:
        return OfferRequest(
            manifest=base64.b64encode(self._bundle.manifest_bytes).decode(),
            signature=base64.b64encode(self._bundle.signature).decode(),
            retry_bad=self._options.retry_bad,
        )

    def _send(self, link: Link) -> None:
        self._patiently(lambda: link.ask(PUT_MANIFEST, self._offer))
        upload(link, self._bundle, self._report)

    def _take_lock(self, link: Link) -> bool:
        """Return whether another client had it first."""
        with self._report.phase("lock"):
            return self._patiently(lambda: self._lock(link, f"push of {self._release}"))

    def _patiently(self, ask: Callable[[], object]) -> bool:
        """Ask for what takes a lock, until it is free; return whether another client had it first."""
        patience_s = max(self._options.lock_wait_s, _OLD_AGENT_S if self.reach.count > 1 else 0.0)
        deadline, has_waited = Deadline.after(patience_s), False
        while True:
            try:
                ask()
                return has_waited
            except DeployError as error:
                if deadline.is_over or not error.code.startswith("lock."):
                    raise
            has_waited = True
            self._pause(_LOCK_PAUSE_S)

    def _lock(self, link: Link, why: str) -> None:
        link.ask(LOCK, LockRequest(who=self._options.who, why=why))

    def _is_staged(self, link: Link) -> bool:
        """Stage, and return whether all was there; if not, and it comes from a slow place, the lock is given back."""
        request = StageRequest(release=self._release, retry_bad=self._options.retry_bad)
        with self._report.phase("stage"):
            try:
                link.ask(STAGE, request)
            except DeployError as error:
                is_fetched, self._rounds = self._options.is_fetched, self._rounds + 1
                is_gone = is_fetched and error.code == "transfer.absent"
                if not (is_gone or error.code == "transfer.damaged") or self._rounds > _MOST_ROUNDS:
                    raise
                self._report.note("stage", f"{error.problem}; sending them again", code=error.code)
                if is_fetched:
                    self.reach.close()
                    return False
                upload(link, self._bundle, self._report)
                link.ask(STAGE, request)
        return True

    def _build(self, link: Link) -> None:
        request = BuildRequest(release=self._release, detach=self._options.detach)
        with self._report.phase("build"):
            built = link.ask(BUILD, request, self._report.taker("build"))
            if built.skipped:
                self._report.note("build", f"engine {(built.key or '')[:12]} is there and proven")
            elif built.golden is not None:
                self._report.note("build", golden_words(built.key, built.golden))
            if built.engine:
                self._report.note("build", built.engine)

    def _switch(self, link: Link) -> None:
        request = SwitchRequest(release=self._release, confirm=self._options.confirm)
        with self._report.phase("switch"):
            self._is_switched = True
            self._switches += 1
            switched = link.ask(SWITCH, request, self._report.taker("switch"))
            if switched.note:
                self._report.note("switch", switched.note)
        if self._options.confirm or self._options.is_fetched:
            # What is to be confirmed is that the device can be reached anew; and a person may want to go back.
            self.reach.close()

    def _watch(self) -> Outcome:
        deadline = Deadline(self._report.moved_at + self._patience_s)
        hold_s = int(self._bundle.manifest.health.hold_s)
        link = self.reach.link()
        told: str | None = None
        with self._report.phase("trial", total=hold_s):
            while True:
                status = link.ask(STATUS, Nothing())
                verdict = verdict_of(status, self._release, None if self._plan is None else self._plan.last)
                if isinstance(verdict, DeployError):
                    if result_of(verdict) == "rolled-back":
                        self._await_old_release(link)
                    raise verdict
                if verdict == COMMITTED:
                    for words in silent_words(status):
                        self._report.note("trial", words)
                    break
                if not is_on_trial(status, self._release):
                    if self._switches >= _MOST_SWITCHES:
                        raise _undecided(self._release, self._patience_s)
                    self._is_switched = False  # the request was lost on the way: nothing has changed on the device
                    return self._push()
                self._confirm(link, status)
                self._offer_a_judge(link, status)
                if deadline.is_over:
                    raise _undecided(self._release, self._patience_s)
                self._report.far("trial", elapsed_s(status), hold_s)
                told = self._tell_wait(status, told)
                self._pause(_WATCH_PAUSE_S)
        self._clean(link)
        return self.ended("committed")

    def _tell_wait(self, status: StatusAnswer, told: str | None) -> str | None:
        limits = self._bundle.manifest.health
        if status.waits_for == told or elapsed_s(status) < min(limits.hold_s, _SETTLED_S):
            return told
        how = f"at most {limits.deadline_s:g} s from the switch on, for {limits.hold_s:g} s in which all is well"
        self._report.note("trial", f"{status.waits_for or 'all is well now'}; the trial waits, {how}")
        return status.waits_for

    def _await_old_release(self, link: Link) -> None:
        # The verdict is on the disk before the service is started again; a reader of "serves" needs it to be true.
        deadline = Deadline.after(_RETURN_S)
        with self._report.phase("return"):
            while not serves_current(link.ask(STATUS, Nothing())):
                if deadline.is_over:
                    self._report.note("return", f"the release before is not ready within {_RETURN_S:.0f} s")
                    return
                self._pause(_WATCH_PAUSE_S)

    def _confirm(self, link: Link, status: StatusAnswer) -> None:
        if self._options.confirm and state_of(status).confirm:
            link.ask(CONFIRM, ConfirmRequest(release=self._release))
            self._report.note("trial", "confirmed")

    def _offer_a_judge(self, link: Link, status: StatusAnswer) -> None:
        # The agent that takes a lock looks whether a judge of the trial runs; see edge.runtime.agent.serve.
        passed_s = elapsed_s(status)
        if self.reach.count < 2 or passed_s < _ORPHAN_S or passed_s % 10:
            return
        try:
            self._lock(link, f"trial of {self._release}")
        except DeployError as error:
            if not error.code.startswith("lock."):
                raise

    def _clean(self, link: Link) -> None:
        # Nothing depends on it, and the next push does it again.
        with contextlib.suppress(DeployError), self._report.phase("clean"):
            self._lock(link, "garbage collection")
            link.ask(GC, Nothing())

    def _pause(self, pause_s: float) -> None:
        if self._stop.wait(pause_s):
            raise Interrupted


def _raise_first(refusals: Sequence[Problem]) -> None:
    if refusals:
        error = error_of(refusals[0])
        error.evidence["refusals"] = [one.code for one in refusals]
        raise error


def _usual_s(bundle: Deliverable, options: DeliveryOptions) -> float:
    """Return what a push takes at most where nothing is wrong: slow link, build, trial, and the push before it."""
    size = sum(file.length_bytes for file in bundle.manifest.files)
    trial_s = bundle.manifest.health.deadline_s + _VERDICT_GRACE_S
    return size / _SLOWEST_BYTES_PER_S + _REST_S + trial_s + options.lock_wait_s


def _undecided(release: str, patience_s: float) -> DeployError:
    return DeployError(
        "trial.undecided",
        f"the device has not judged release {release} within {patience_s:.0f} s",
        hint="look at edge-deploy status and edge-deploy logs",
    )
