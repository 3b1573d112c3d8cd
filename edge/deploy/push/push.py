"""A push to one target: each step once, again after a lost connection, and watched to its verdict."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from edge.bundle.manifest import BundledFile, Manifest
from edge.deploy.push.event import BEGIN, END, NOTE, PROGRESS, Event, OnEvent, now
from edge.deploy.push.link import Interrupted, Link, OnProgress, Progress, is_lost
from edge.deploy.push.options import PushOptions
from edge.deploy.push.outcome import Outcome, Result
from edge.deploy.push.verdict import COMMITTED, is_on_trial, verdict_of
from edge.errors import DeployError
from edge.transport.channel import Channel

__all__ = ["Push", "Pushable"]

_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_OLD_AGENT_S = 35.0  # an agent whose client vanished without a word holds its lock for 30 s
_WATCH_S = 1.0
_VERDICT_GRACE_S = 300.0  # a restart of the service, or of the device, on top of the trial's own deadline


class Pushable(Protocol):
    """A release on this machine: its manifest, its signature, and where its files lie."""

    @property
    def manifest(self) -> Manifest:
        """The manifest."""
        ...

    @property
    def manifest_bytes(self) -> bytes:
        """The manifest as it was signed."""
        ...

    @property
    def signature(self) -> bytes:
        """The signature over these bytes."""
        ...

    def path_of(self, file: BundledFile) -> Path:
        """Return where a file of the manifest lies."""
        ...


class Push:
    """One push of `bundle` over connections that `connect` opens; use once.

    `run` returns how it ended and raises nothing that a person could cause.
    """

    def __init__(
        self,
        bundle: Pushable,
        connect: Callable[[], Channel],
        *,
        target: str,
        options: PushOptions,
        on_event: OnEvent,
        stop: threading.Event,
    ) -> None:
        self._bundle, self._connect, self._target, self._options = bundle, connect, target, options
        self._on_event, self._stop = on_event, stop
        self._release = bundle.manifest.release
        self._links = 0
        self._sent_before = 0
        self._link: Link | None = None
        self._moved_at = time.monotonic()
        self._last_before: Mapping[str, Any] | None = None
        self._is_switched = False

    def run(self) -> Outcome:
        """Push."""
        began = time.monotonic()
        try:
            result, error, evidence = self._until_done()
        except Interrupted:
            result, error, evidence = "interrupted", None, {}
        except DeployError as problem:
            result, error, evidence = _result_of(problem), problem, problem.evidence
        finally:
            self._disconnect()
        return Outcome(
            target=self._target,
            release=self._release,
            result=result,
            code=None if error is None else error.code,
            problem=None if error is None else error.problem,
            hint=None if error is None else error.hint,
            evidence=evidence,
            bytes_sent=self._sent_before,
            seconds=round(time.monotonic() - began, 3),
            exit_code=_exit_code(result, error),
        )

    def _until_done(self) -> _End:
        while True:
            try:
                return self._watch() if self._is_switched else self._push()
            except DeployError as error:
                if not is_lost(error) or not self._was_reached:
                    raise
                self._note("connect", f"{error.problem}; trying again")
                self._reach_again(error)

    @property
    def _was_reached(self) -> bool:
        return self._links > 0

    # Connections

    def _reached(self) -> Link:
        if self._link is None:
            self._link = Link(self._connect(), self._stop)
            self._links += 1
        return self._link

    def _disconnect(self) -> None:
        if self._link is not None:
            self._sent_before += self._link.bytes_sent
            self._link.close()
            self._link = None

    def _reach_again(self, error: DeployError) -> None:
        self._disconnect()
        for attempt in range(1_000_000):
            left_s = self._moved_at + self._patience_s - time.monotonic()
            if left_s <= 0:
                raise error
            if self._stop.wait(min(_BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)], left_s)):
                raise Interrupted
            try:
                self._reached()
            except DeployError as again:
                if not is_lost(again):
                    raise
                error = again
            else:
                return

    @property
    def _patience_s(self) -> float:
        # After the switch the device goes on alone, perhaps through a reboot; there is nothing to lose by waiting.
        health = self._bundle.manifest.health
        return health.deadline_s + _VERDICT_GRACE_S if self._is_switched else self._options.reconnect_s

    # Steps

    def _push(self) -> _End:
        with self._phase("connect"):
            link = self._reached()
        with self._phase("plan"):
            plan = link.ask("plan", self._offer)
        if self._last_before is None:
            self._last_before = plan.get("last") or {}
        if plan["is_unchanged"]:
            return "unchanged", None, {"plan": _summary(plan)}
        _raise_first(plan["refusals"])
        if self._options.is_plan:
            return "planned", None, {"plan": _summary(plan)}
        self._take_lock(link)
        link.ask("put-manifest", self._offer)
        self._upload(link, sum(plan["missing"].values()))
        self._stage(link)
        return self._build_and_switch(link)

    @property
    def _offer(self) -> dict[str, Any]:
        return {
            "manifest": base64.b64encode(self._bundle.manifest_bytes).decode(),
            "signature": base64.b64encode(self._bundle.signature).decode(),
            "retry_bad": self._options.retry_bad,
        }

    def _take_lock(self, link: Link) -> None:
        patience_s = max(self._options.lock_wait_s, _OLD_AGENT_S if self._links > 1 else 0.0)
        deadline = time.monotonic() + patience_s
        with self._phase("lock"):
            while True:
                try:
                    link.ask("lock", {"who": self._options.who, "why": f"push of {self._release}"})
                    return
                except DeployError as error:
                    if not error.code.startswith("lock.") or time.monotonic() >= deadline:
                        raise
                if self._stop.wait(0.5):
                    raise Interrupted

    def _upload(self, link: Link, total: int) -> None:
        with self._phase("upload", total=total):
            self._send_missing(link, total)

    def _send_missing(self, link: Link, total: int) -> None:
        files = {one.sha256: one for one in self._bundle.manifest.files}
        missing: dict[str, int] = link.ask("have", {"sha256": sorted(files)})["missing"]
        done = 0
        for sha256, offset in sorted(missing.items(), key=lambda item: files[item[0]].length_bytes):
            before = done - offset
            report = self._bytes_report("upload", before, total)
            self._send_blob(link, files[sha256], offset, report)
            done = before + files[sha256].length_bytes

    def _send_blob(self, link: Link, file: BundledFile, offset: int, on_progress: OnProgress) -> None:
        path = self._bundle.path_of(file)
        try:
            with path.open("rb") as content:
                for is_second in (False, True):
                    try:
                        link.send_blob(
                            file.sha256, content, offset=offset, length=file.length_bytes, on_progress=on_progress
                        )
                        return
                    except DeployError as error:
                        if error.code != "transfer.hash" or is_second:
                            raise
                        self._note("upload", f"{error.problem}; sending it once more", code=error.code)
                        offset = 0
        except OSError as error:
            raise DeployError("request.bundle", f"{path}: {error.strerror}", hint="make the bundle again") from None

    def _stage(self, link: Link) -> None:
        with self._phase("stage"):
            try:
                link.ask("stage", {"release": self._release, "retry_bad": self._options.retry_bad})
            except DeployError as error:
                if error.code != "transfer.damaged":
                    raise
                self._note("stage", f"{error.problem}; sending them again", code=error.code)
                self._send_missing(link, 0)
                link.ask("stage", {"release": self._release, "retry_bad": self._options.retry_bad})

    def _build_and_switch(self, link: Link) -> _End:
        with self._phase("build"):
            built = link.ask(
                "build", {"release": self._release, "detach": self._options.detach}, self._seconds_report("build")
            )
            if built.get("skipped"):
                self._note("build", f"engine {built.get('key')} is there and proven")
        if self._options.detach:
            return "detached", None, {"build": dict(built)}
        with self._phase("switch"):
            self._is_switched, self._moved_at = True, time.monotonic()
            link.ask(
                "switch",
                {"release": self._release, "confirm": self._options.confirm},
                self._seconds_report("switch"),
            )
        if self._options.confirm:
            self._disconnect()  # what is to be confirmed is that the device can be reached anew
        return self._watch()

    # The trial

    def _watch(self) -> _End:
        link = self._reached()
        hold_s = self._bundle.manifest.health.hold_s
        with self._phase("trial", total=int(hold_s)):
            while True:
                status = link.ask("status")
                verdict = verdict_of(status, self._release, self._last_before or {})
                if verdict == COMMITTED:
                    break
                if isinstance(verdict, DeployError):
                    raise verdict
                if not is_on_trial(status, self._release):
                    return self._push_again()
                self._confirm(link, status)
                self._check_patience()
                self._say("trial", PROGRESS, bytes=_elapsed_s(status), total=int(hold_s))
                if self._stop.wait(_WATCH_S):
                    raise Interrupted
        self._clean(link)
        return "committed", None, {}

    def _push_again(self) -> _End:
        # The request to switch was lost on the way: nothing has changed on the device.
        self._is_switched = False
        return self._push()

    def _confirm(self, link: Link, status: Mapping[str, Any]) -> None:
        if self._options.confirm and status["state"].get("confirm"):
            link.ask("confirm", {"release": self._release})
            self._note("trial", "confirmed")

    def _check_patience(self) -> None:
        if time.monotonic() - self._moved_at > self._patience_s:
            raise DeployError(
                "trial.undecided",
                f"the device has not judged release {self._release} within {self._patience_s:.0f} s",
                hint="look at edge-deploy status and logs",
            )

    def _clean(self, link: Link) -> None:
        # Nothing depends on it: the next push does it again.
        with contextlib.suppress(DeployError), self._phase("clean"):
            link.ask("lock", {"who": self._options.who, "why": "garbage collection"})
            link.ask("gc")

    # Events

    @contextlib.contextmanager
    def _phase(self, name: str, *, total: int | None = None) -> Iterator[None]:
        self._say(name, BEGIN, total=total)
        yield
        self._say(name, END, total=total)

    def _note(self, phase: str, text: str, *, code: str | None = None) -> None:
        self._say(phase, NOTE, code=code, hint=text)

    def _bytes_report(self, phase: str, before: int, total: int) -> OnProgress:
        def report(progress: Progress) -> None:
            self._moved_at = time.monotonic()
            self._say(phase, PROGRESS, bytes=max(0, before + int(progress.done)), total=total)

        return report

    def _seconds_report(self, phase: str) -> OnProgress:
        def report(progress: Progress) -> None:
            self._moved_at = time.monotonic()
            self._say(phase, PROGRESS, bytes=int(progress.done), total=int(progress.total or 0))

        return report

    def _say(self, phase: str, event: str, **values: Any) -> None:
        self._on_event(Event(ts=now(), target=self._target, phase=phase, event=event, **values))


_End = tuple[Result, "DeployError | None", Mapping[str, object]]


def _raise_first(refusals: list[Mapping[str, Any]]) -> None:
    if refusals:
        first = refusals[0]
        evidence = {**first["evidence"], "all": [one["code"] for one in refusals]}
        raise DeployError(first["code"], first["problem"], hint=first["hint"], evidence=evidence)


def _summary(plan: Mapping[str, Any]) -> dict[str, object]:
    return {key: plan[key] for key in ("release", "current", "bytes", "missing", "engine")}


def _elapsed_s(status: Mapping[str, Any]) -> int:
    passed_ns = status["at"]["boottime_ns"] - status["state"].get("started_boottime_ns", 0)
    return max(0, passed_ns // 1_000_000_000)


def _result_of(error: DeployError) -> Result:
    kind = error.code.partition(".")[0]
    if is_lost(error) or error.code.startswith("transfer.ssh"):
        return "unreachable"
    if kind == "trial":
        return "rolled-back" if error.code != "trial.undecided" else "failed"
    return "refused" if kind in ("preflight", "verify", "lock", "request") else "failed"


def _exit_code(result: Result, error: DeployError | None) -> int:
    if error is not None:
        return error.exit_code
    return {"planned": 10, "interrupted": 130}.get(result, 0)
