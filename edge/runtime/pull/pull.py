"""A pull: what does the tag name, has it had its verdict here, and if not, the way of every release to an agent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from edge.delivery.deliver import deliver
from edge.delivery.event import BEGIN, Event, OnEvent
from edge.delivery.link import Interrupted, Link
from edge.delivery.options import DeliveryOptions
from edge.delivery.outcome import DONE, INTERRUPTED, Outcome
from edge.delivery.result import result_of
from edge.delivery.verdict import COMMITTED, ROLLED_BACK, leaving_of
from edge.device.bad import Verdict
from edge.errors import DeployError
from edge.registry.client import RegistryClient
from edge.registry.problems import BUSY
from edge.runtime.pull.record import ON_TRIAL, PullRecord, Settled, settled_by
from edge.runtime.pull.release import RegistryRelease, fetch_release
from edge.transport.channel import Channel
from edge.wire.ending import Nothing
from edge.wire.status import StatusAnswer
from edge.wire.verbs import STATUS, SWITCH

__all__ = ["Pulled", "pull"]

_LONGEST_WAIT_S = 25 * 3600.0  # longer than any answer may ask for: the clock was set meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """How a pull ended, and what to remember of it; `is_asked`: whether the registry was asked at all."""

    outcome: Outcome
    record: PullRecord
    is_asked: bool = True


def pull(
    client: RegistryClient,
    connect: Callable[[], Channel],
    *,
    last: PullRecord | None,
    options: DeliveryOptions,
    on_event: OnEvent,
    stop: threading.Event,
    remember: Callable[[PullRecord], None],
    is_forced: bool = False,
    is_hearsay: bool = False,
) -> Pulled:
    """Bring what the tag of `client` names now to the agent that `connect` reaches; raises nothing.

    `remember` is given a record before the device is asked to switch, for whom this pull does not live to tell more; it
    returns once that is on the disk, and raises nothing. How it ended is in what is returned.

    What had its verdict here is not asked for again, so that a person who went back is not overruled: until the tag
    names something else, or nothing serves; then a release in whose trial power was lost is tried again, too. A
    registry that wants to be left alone is left alone, unless `is_forced`.

    `is_hearsay`: `last` is what other software has written, which may be wrong. Of that only what the device confirms
    counts: that it has left the release; neither what a digest holds nor how long to leave the registry alone.
    """
    reference = str(client.reference)
    left_s = 0.0 if last is None or is_forced else last.not_before_s - time.time()
    if last is not None and not is_hearsay and last.reference == reference and 0 < left_s < _LONGEST_WAIT_S:
        return Pulled(outcome=_nothing(last.release, reference), record=last, is_asked=False)
    work = _Pull(client, connect, last, options, on_event, stop, remember, is_hearsay)
    try:
        outcome = work.outcome()
        if stop.is_set() and (outcome.code or "").startswith("registry."):
            raise Interrupted  # a registry is asked again and again, but not by who is to stop
    except Interrupted:
        outcome = Outcome(target=reference, release=work.release, result="interrupted", exit_code=INTERRUPTED)
    except DeployError as error:
        outcome = _failed(error, reference, work.release)
    return Pulled(outcome=outcome, record=_ended(work, outcome, reference))


class _Pull:
    def __init__(
        self,
        client: RegistryClient,
        connect: Callable[[], Channel],
        last: PullRecord | None,
        options: DeliveryOptions,
        on_event: OnEvent,
        stop: threading.Event,
        remember: Callable[[PullRecord], None],
        is_hearsay: bool,
    ) -> None:
        self._is_hearsay = is_hearsay
        self._client, self._connect, self.last = client, connect, last
        self._options, self._on_event, self._stop, self._remember = options, on_event, stop, remember
        self._reference = str(client.reference)
        self.digest: str | None = None
        self.release: str | None = None
        self.judged: Settled | None = None

    @property
    def is_basic(self) -> bool:
        return self._client.is_basic

    def outcome(self) -> Outcome:
        tag = self._client.reference.tag or "latest"
        said = self._client.digest_of(tag)
        self.digest = said
        if said is not None and self._has_verdict(digest=said):
            return _nothing(self.release, self._reference)
        artifact, self.digest = self._client.artifact(tag)
        if self.digest != said and self._has_verdict(digest=self.digest):
            return _nothing(self.release, self._reference)
        found = fetch_release(self._client, artifact, self._stop)
        self.release = found.manifest.release
        if self._has_verdict(release=self.release):
            return _nothing(self.release, self._reference)
        outcome = self._delivered(found, self._options)
        is_suspect = outcome.code == "preflight.bad" and outcome.evidence.get("verdict") == Verdict.SUSPECT.value
        if is_suspect and self._status().current is None:
            # Power was lost twice in its trial. Nothing serves that it could harm, and nobody may come by for months.
            outcome = self._delivered(found, replace(self._options, retry_bad=True))
        return outcome

    def _delivered(self, release: RegistryRelease, options: DeliveryOptions) -> Outcome:
        return deliver(
            release,
            self._connect,
            target=self._reference,
            options=options,
            on_event=self._heard,
            stop=self._stop,
        )

    def _heard(self, event: Event) -> None:
        # From here on the device goes on alone, and what it comes to may be undone by a person before the next look.
        if (event.phase, event.event) == (SWITCH.name, BEGIN):
            self.last = _record(self, ON_TRIAL, self._reference)
            self._remember(self.last)
        self._on_event(event)

    def _has_verdict(self, *, digest: str | None = None, release: str | None = None) -> bool:
        """Return whether what the tag names had its verdict here, and something serves."""
        last = self.last
        if last is None or self._options.retry_bad:
            return False
        knows = last.is_on_trial if not self._is_hearsay else last.is_settled
        if not self._is_hearsay and last.is_judged(self._reference, digest=digest, release=release):
            if self._status().current is None:
                return False
            self.judged = last.settled
        elif release is not None and knows(self._reference, release=release):
            left = leaving_of(self._status(), release)
            if left is None:
                return False
            result = ROLLED_BACK if left.result == ROLLED_BACK else COMMITTED
            self.judged = Settled(digest=self.digest, release=release, result=result, problem=left.reason)
        else:
            return False
        self.release = None if self.judged is None else self.judged.release
        return True

    def _status(self) -> StatusAnswer:
        link = Link(self._connect(), self._stop)
        try:
            return link.ask(STATUS, Nothing())
        finally:
            link.close()


def _record(work: _Pull, result: str, reference: str, **more: Any) -> PullRecord:
    at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    record = PullRecord(
        reference=reference,
        digest=work.digest,
        release=work.release,
        result=result,
        at=at,
        is_basic=work.is_basic,
        **more,
    )
    if work.judged is not None:
        told = replace(work.judged, digest=work.digest)
        return replace(record, result=told.result, code=told.code, problem=told.problem, settled=told)
    return replace(record, settled=settled_by(record, before=work.last))


def _ended(work: _Pull, outcome: Outcome, reference: str) -> PullRecord:
    wait_s = outcome.evidence.get("retry_after_s") if outcome.code == BUSY else None
    return _record(
        work,
        outcome.result,
        reference,
        code=outcome.code,
        problem=outcome.problem,
        not_before_s=time.time() + wait_s if isinstance(wait_s, float) else 0.0,
    )


def _nothing(release: str | None, reference: str) -> Outcome:
    return Outcome(target=reference, release=release, result="unchanged", exit_code=DONE)


def _failed(error: DeployError, reference: str, release: str | None) -> Outcome:
    return Outcome(
        target=reference,
        release=release,
        result=result_of(error),
        code=error.code,
        problem=error.problem,
        hint=error.hint,
        evidence=error.evidence,
        exit_code=error.exit_code,
    )
