"""A push to one target: each step once, again after a lost connection, and watched to its verdict."""

from __future__ import annotations

import base64
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from edge.deploy.push.event import OnEvent
from edge.deploy.push.link import Interrupted, Link, is_lost
from edge.deploy.push.options import PushOptions
from edge.deploy.push.outcome import DONE, INTERRUPTED, PLANNED, Outcome, Result
from edge.deploy.push.pushable import Pushable
from edge.deploy.push.reach import Reach
from edge.deploy.push.report import Report
from edge.deploy.push.result import result_of
from edge.deploy.push.upload import upload
from edge.deploy.push.verdict import COMMITTED, elapsed_s, is_on_trial, serves_current, verdict_of
from edge.deploy.push.words import engine_words, golden_words, plan_words, silent_words
from edge.errors import DeployError
from edge.transport.channel import Channel

__all__ = ["push"]

_LOG = logging.getLogger(__name__)

_OLD_AGENT_S = 35.0  # an agent whose client vanished without a word holds its lock for 30 s
_LOCK_PAUSE_S = 0.5
_WATCH_PAUSE_S = 1.0
_RETURN_S = 120.0  # the start-up deadline of the service
_ORPHAN_S = 20  # after so long a judge is at work, unless the agent that was to start it was killed
_VERDICT_GRACE_S = 300.0  # a restart of the service, or of the device, on top of the trial's own deadline


class _End(NamedTuple):
    result: Result
    evidence: Mapping[str, object] = {}


def push(
    bundle: Pushable,
    connect: Callable[[], Channel],
    *,
    target: str,
    options: PushOptions,
    on_event: OnEvent,
    stop: threading.Event,
) -> Outcome:
    """Push `bundle` over connections that `connect` opens; return how it ended, soon after `stop` is set.

    A connection that is lost before the switch is made again, and the push goes on where it was; after the switch the
    device goes on alone, and the verdict is read once it can be reached again.
    """
    began = time.monotonic()
    work = _Push(bundle, Reach(connect, stop), Report(target, on_event), options, stop)
    error: DeployError | None = None
    try:
        end = work.until_done()
    except Interrupted:
        end = _End("interrupted")
    except DeployError as problem:
        error, end = problem, _End(result_of(problem), problem.evidence)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        # The device's words are not checked one by one: it may be of another version, or not well.
        _LOG.debug("unreadable answer", exc_info=True)
        error, end = _unreadable(problem), _End("failed")
    finally:
        work.reach.close()
    return Outcome(
        target=target,
        release=bundle.manifest.release,
        result=end.result,
        code=None if error is None else error.code,
        problem=None if error is None else error.problem,
        hint=None if error is None else error.hint,
        evidence=end.evidence,
        bytes_sent=work.reach.bytes_sent,
        seconds=round(time.monotonic() - began, 3),
        exit_code=_exit_code(end.result) if error is None else error.exit_code,
    )


class _Push:
    def __init__(
        self, bundle: Pushable, reach: Reach, report: Report, options: PushOptions, stop: threading.Event
    ) -> None:
        self._bundle, self.reach, self._report, self._options, self._stop = bundle, reach, report, options, stop
        self._release = bundle.manifest.release
        self._last_before: Mapping[str, Any] | None = None
        self._is_switched = False  # as far as we know: the request was sent

    def until_done(self) -> _End:
        while True:
            try:
                return self._watch() if self._is_switched else self._push()
            except DeployError as error:
                if not is_lost(error) or self.reach.count == 0:
                    raise
                self._report.note("connect", f"{error.problem}; trying to reach it again", code=error.code)
                self.reach.again(error, until=self._report.moved_at + self._patience_s)

    @property
    def _patience_s(self) -> float:
        # After the switch the device goes on alone, perhaps through a reboot; there is nothing to lose by waiting.
        deadline_s = self._bundle.manifest.health.deadline_s + _VERDICT_GRACE_S
        return deadline_s if self._is_switched else self._options.reconnect_s

    def _push(self) -> _End:
        with self._report.phase("connect"):
            link = self.reach.link()
        with self._report.phase("plan"):
            plan = link.ask("plan", self._offer)
        if self._last_before is None:
            self._last_before = plan.get("last") or {}
        self._report.note("plan", plan_words(plan, self._bundle.manifest))
        evidence = {key: plan[key] for key in ("current", "bytes", "missing", "engine")}
        if plan["is_unchanged"]:
            return _End("unchanged", evidence)
        _raise_first(plan["refusals"])
        if self._options.is_plan:
            return _End("planned", evidence)
        self._take_lock(link)
        link.ask("put-manifest", self._offer)
        upload(link, self._bundle, self._report)
        self._stage(link)
        self._build(link)
        if self._options.detach:
            return _End("detached")
        self._switch(link)
        return self._watch()

    @property
    def _offer(self) -> dict[str, Any]:
        return {
            "manifest": base64.b64encode(self._bundle.manifest_bytes).decode(),
            "signature": base64.b64encode(self._bundle.signature).decode(),
            "retry_bad": self._options.retry_bad,
        }

    def _take_lock(self, link: Link) -> None:
        patience_s = max(self._options.lock_wait_s, _OLD_AGENT_S if self.reach.count > 1 else 0.0)
        deadline = time.monotonic() + patience_s
        with self._report.phase("lock"):
            while not self._has_taken_lock(link, is_last=time.monotonic() >= deadline):
                self._pause(_LOCK_PAUSE_S)

    def _has_taken_lock(self, link: Link, *, is_last: bool) -> bool:
        try:
            link.ask("lock", {"who": self._options.who, "why": f"push of {self._release}"})
        except DeployError as error:
            if is_last or not error.code.startswith("lock."):
                raise
            return False
        return True

    def _stage(self, link: Link) -> None:
        request = {"release": self._release, "retry_bad": self._options.retry_bad}
        with self._report.phase("stage"):
            try:
                link.ask("stage", request)
            except DeployError as error:
                if error.code != "transfer.damaged":
                    raise
                self._report.note("stage", f"{error.problem}; sending them again", code=error.code)
                upload(link, self._bundle, self._report)
                link.ask("stage", request)

    def _build(self, link: Link) -> None:
        request = {"release": self._release, "detach": self._options.detach}
        with self._report.phase("build"):
            built = link.ask("build", request, self._report.taker("build"))
            if built.get("skipped"):
                self._report.note("build", f"engine {str(built.get('key'))[:12]} is there and proven")
            elif built.get("golden"):
                self._report.note("build", golden_words(built))
            if words := engine_words(built):
                self._report.note("build", words)

    def _switch(self, link: Link) -> None:
        request = {"release": self._release, "confirm": self._options.confirm}
        with self._report.phase("switch"):
            self._is_switched = True
            switched = link.ask("switch", request, self._report.taker("switch"))
            if switched.get("note"):
                self._report.note("switch", str(switched["note"]))
        if self._options.confirm:
            self.reach.close()  # what is to be confirmed is that the device can be reached anew

    def _watch(self) -> _End:
        deadline = self._report.moved_at + self._patience_s
        hold_s = int(self._bundle.manifest.health.hold_s)
        link = self.reach.link()
        with self._report.phase("trial", total=hold_s):
            while True:
                status = link.ask("status")
                verdict = verdict_of(status, self._release, self._last_before or {})
                if isinstance(verdict, DeployError):
                    if result_of(verdict) == "rolled-back":
                        self._await_old_release(link)
                    raise verdict
                if verdict == COMMITTED:
                    self._tell_silent(status)
                    break
                if not is_on_trial(status, self._release):
                    self._is_switched = False  # the request was lost on the way: nothing has changed on the device
                    return self._push()
                self._confirm(link, status)
                self._offer_a_judge(link, status)
                if time.monotonic() > deadline:
                    raise _undecided(self._release, self._patience_s)
                self._report.far("trial", elapsed_s(status), hold_s)
                self._pause(_WATCH_PAUSE_S)
        self._clean(link)
        return _End("committed")

    def _tell_silent(self, status: Mapping[str, Any]) -> None:
        for words in silent_words(status):
            self._report.note("trial", words)

    def _await_old_release(self, link: Link) -> None:
        # The verdict is on the disk before the service is started again; who reads "serves" wants it to be true.
        deadline = time.monotonic() + _RETURN_S
        with self._report.phase("return"):
            while not serves_current(link.ask("status")):
                if time.monotonic() > deadline:
                    self._report.note("return", f"the release before is not ready within {_RETURN_S:.0f} s")
                    return
                self._pause(_WATCH_PAUSE_S)

    def _confirm(self, link: Link, status: Mapping[str, Any]) -> None:
        if self._options.confirm and status["state"].get("confirm"):
            link.ask("confirm", {"release": self._release})
            self._report.note("trial", "confirmed")

    def _offer_a_judge(self, link: Link, status: Mapping[str, Any]) -> None:
        # The agent that takes a lock looks whether the trial is judged by anybody; see edge.runtime.agent.orphan.
        passed_s = elapsed_s(status)
        if self.reach.count < 2 or passed_s < _ORPHAN_S or passed_s % 10:
            return
        try:
            link.ask("lock", {"who": self._options.who, "why": f"trial of {self._release}"})
        except DeployError as error:
            if not error.code.startswith("lock."):
                raise

    def _clean(self, link: Link) -> None:
        # Nothing depends on it, and the next push does it again.
        with contextlib.suppress(DeployError), self._report.phase("clean"):
            link.ask("lock", {"who": self._options.who, "why": "garbage collection"})
            link.ask("gc")

    def _pause(self, pause_s: float) -> None:
        if self._stop.wait(pause_s):
            raise Interrupted


def _raise_first(refusals: list[Mapping[str, Any]]) -> None:
    if refusals:
        first = refusals[0]
        evidence = {**first["evidence"], "refusals": [one["code"] for one in refusals]}
        raise DeployError(first["code"], first["problem"], hint=first["hint"], evidence=evidence)


def _unreadable(problem: Exception) -> DeployError:
    return DeployError(
        "transfer.protocol",
        f"the device's answer cannot be read: {type(problem).__name__}: {problem}",
        hint="use the same edge-deploy on both sides: edge-deploy provision",
    )


def _undecided(release: str, patience_s: float) -> DeployError:
    return DeployError(
        "trial.undecided",
        f"the device has not judged release {release} within {patience_s:.0f} s",
        hint="look at edge-deploy status and edge-deploy logs",
    )


def _exit_code(result: Result) -> int:
    return {"planned": PLANNED, "interrupted": INTERRUPTED}.get(result, DONE)
