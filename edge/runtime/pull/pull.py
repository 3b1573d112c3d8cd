"""A pull: what does the tag name, has it had its verdict here, and if not, the way of every release to an agent."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import BinaryIO, TypeVar, cast

from edge.bundle.manifest import MAX_MANIFEST_BYTES, BundledFile, Manifest, decode_manifest
from edge.bundle.sign import MAX_SIGNATURE_BYTES
from edge.bundle.statement import MAX_CHAIN_BYTES
from edge.delivery.deliver import deliver
from edge.delivery.deliverable import DeliveryOptions
from edge.delivery.link import Interrupted, Link
from edge.delivery.outcome import DONE, INTERRUPTED, OnEvent, Outcome
from edge.delivery.verdict import COMMITTED, ROLLED_BACK, failed_by, state_of
from edge.device.state import Verdict
from edge.errors import DeployError
from edge.registry.artifact import TRUST_TYPE, Artifact, decode_artifact, is_nothing, layer_of_note, statement_in
from edge.registry.client import BlobFile, RegistryClient
from edge.registry.https import BUSY
from edge.registry.reference import TRUST_TAG, withdrawal_tag
from edge.runtime.pull.record import KEPT, PullRecord, Settled, settled_by
from edge.transport.channel import Channel
from edge.wire.peer import Nothing
from edge.wire.release import RingAnswer, RingRequest, TrustRequest
from edge.wire.verbs import RING, STATUS, TRUST, StatusAnswer, Verb

__all__ = ["Pulled", "RegistryRelease", "fetch_release", "pull", "unasked"]

Q = TypeVar("Q")
A = TypeVar("A")

_LONGEST_WAIT_S = 25 * 3600.0  # longer than any answer may ask for: the clock was set meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRelease:
    """The manifest and its signature are here, unverified: the agent verifies them. Files are read when asked for."""

    manifest: Manifest
    manifest_bytes: bytes
    signature: bytes
    _client: RegistryClient = field(repr=False)
    _stop: threading.Event = field(repr=False)

    @contextmanager
    def opened(self, file: BundledFile) -> Iterator[BinaryIO]:
        """Give a file of the manifest as the registry sends it; the agent checks its digest."""
        with closing(BlobFile(self._client, file.sha256, file.length_bytes, stop=self._stop)) as blob:
            yield cast(BinaryIO, blob)


def fetch_release(client: RegistryClient, artifact: Artifact, stop: threading.Event) -> RegistryRelease:
    """Raises `DeployError` `registry.*`; `verify.manifest.*` if its manifest is not usable."""
    content = client.blob(artifact.manifest, most_bytes=MAX_MANIFEST_BYTES)
    signature = client.blob(artifact.signature, most_bytes=MAX_SIGNATURE_BYTES)
    return RegistryRelease(
        manifest=decode_manifest(content), manifest_bytes=content, signature=signature, _client=client, _stop=stop
    )


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
    is_forced: bool = False,
    has_root: bool = False,
) -> Pulled:
    """Bring what the tag of `client` names now to the agent that `connect` reaches; raises nothing.

    The device is asked first whether it has left that release, by a verdict or by a person, who is not overruled. What
    had its verdict here is not asked for again, until the tag names something else, or nothing serves; then a release
    in whose trial power was lost is tried again, too. A registry that wants to be left alone is left alone, unless
    `is_forced`. `has_root`: the list of trusted signers is fetched, too.
    """
    reference = str(client.reference)
    left_s = 0.0 if last is None or is_forced else last.not_before_s - time.time()
    if last is not None and last.reference == reference and 0 < left_s < _LONGEST_WAIT_S:
        return Pulled(outcome=_nothing(last.release, reference), record=last, is_asked=False)
    work = _Pull(client, connect, last, replace(options, is_fetched=True), on_event, stop, has_root)
    try:
        outcome = work.outcome()
        if stop.is_set() and (outcome.code or "").startswith("registry."):
            raise Interrupted  # a registry is asked again and again, but not by a process that is to stop
    except Interrupted:
        outcome = Outcome(target=reference, release=work.release, result="interrupted", exit_code=INTERRUPTED)
    except DeployError as error:
        outcome = failed_by(error, target=reference, release=work.release)
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
        has_root: bool,
    ) -> None:
        self._reference = str(client.reference)
        self.client, self._connect, self._options, self._on_event = client, connect, options, on_event
        self._stop, self._has_root = stop, has_root
        # Of another tag nothing is known: neither what it named, nor when it was looked at.
        self.last = last = None if last is None or last.reference != self._reference else last
        self.trust_digest = None if last is None else last.trust_digest
        self.looked_at = None if last is None else last.looked_at
        self.digest: str | None = None
        self.release: str | None = None
        self.judged: Settled | None = None
        self.statement: tuple[str | None, str | None] = None, None

    def outcome(self) -> Outcome:
        tag = self.client.reference.tag or "latest"
        if self._has_root:
            self._trust()
        last, content = self.last, None
        self.digest = said = self.client.digest_of(tag)
        self.looked_at = _now_text()
        if said is not None and last is not None and last.digest == said:
            self.statement = last.statement, last.statement_signature
        else:
            content = self._read(tag)
        stated = self._state()
        if self._has_verdict(digest=self.digest):
            return self._nothing_new()
        if content is None:
            content = self._read(tag)
            if self.digest != said:
                stated = self._state()
        if is_nothing(content) and stated.release is None and self._keeps(None, self._why_nothing()):
            return self._nothing_new()
        artifact = decode_artifact(content, where=self.client.name_of(tag))
        found = fetch_release(self.client, artifact, self._stop)
        self.release = found.manifest.release
        if self._has_verdict(release=self.release):
            return self._nothing_new()
        return self._withdrawn(self.release) if self._is_withdrawn(self.release) else self._brought(found)

    def _brought(self, found: RegistryRelease) -> Outcome:
        release = found.manifest.release
        outcome = self._delivered(found, self._options)
        is_suspect = outcome.code == "preflight.bad" and outcome.evidence.get("verdict") == Verdict.SUSPECT.value
        if is_suspect and self._status().current is None:
            # Power was lost twice in its trial. Nothing serves that it could harm, and no person may come for months.
            outcome = self._delivered(found, replace(self._options, retry_bad=True))
        elif outcome.code == "verify.downgrade":
            current = self._status().current
            why = f"{current} was withdrawn, and {release}, which the ring is to run, is older"
            if current is not None and self._is_withdrawn(current) and self._keeps(release, why):
                return self._nothing_new()
        return outcome

    def _why_nothing(self) -> str:
        current = self._status().current
        is_withdrawn = False
        with suppress(DeployError):  # a detail: the pull does not fail for it
            is_withdrawn = current is not None and self._is_withdrawn(current)
        return "the ring is to run nothing" + (f": {current} was withdrawn" if is_withdrawn else "")

    def _withdrawn(self, release: str) -> Outcome:
        """Return that what serves goes on, until that is lifted; DeployError `registry.withdrawn` if nothing serves."""
        current, why = self._status().current, f"{release}, which the ring is to run, was withdrawn"
        if current is None:
            hint = "nothing is to be done here: promote another release to the ring"
            raise DeployError("registry.withdrawn", f"{self._reference}: {why}, and nothing serves", hint=hint)
        return _kept(current, self._reference, why)

    def _nothing_new(self) -> Outcome:
        """Return how a pull ends that has nothing to bring; a release that is kept serves on, and why."""
        if self.judged is None or self.judged.result != KEPT:
            return _nothing(self.release, self._reference)
        if self.judged.release is None:  # a withdrawal may have been lifted, or made, since
            self.judged = replace(self.judged, problem=self._why_nothing())
        return _kept(self._status().current, self._reference, self.judged.problem)

    def _keeps(self, release: str | None, why: str) -> bool:
        """Settle that what serves goes on, for a reason that is no fault of the device; return whether any does."""
        if self._status().current is None:
            return False
        self.judged = Settled(digest=self.digest, release=release, result=KEPT, problem=why)
        return True

    def _trust(self) -> None:
        """Send the agent a newer list of trusted signers, where the registry has one."""
        try:
            content, digest = self.client.manifest(TRUST_TAG)
        except DeployError as error:
            if error.code == "registry.missing":
                return
            raise
        if digest != self.trust_digest:
            layer = layer_of_note(content, TRUST_TYPE, where=self.client.name_of(TRUST_TAG))
            chain = self.client.blob(layer, most_bytes=MAX_CHAIN_BYTES)
            self._asked(TRUST, TrustRequest(chain=base64.b64encode(chain).decode()))
            self.trust_digest = digest

    def _read(self, tag: str) -> bytes:
        content, self.digest = self.client.manifest(tag)
        self.statement = statement_in(content) or (None, None)
        return content

    def _state(self) -> RingAnswer:
        """Have the agent see what is stated for the ring; DeployError `verify.*` where it does not follow that."""
        statement, signature = self.statement
        return self._asked(RING, RingRequest(statement=statement or "", signature=signature or ""))

    def _is_withdrawn(self, release: str) -> bool:
        try:
            return not is_nothing(self.client.manifest(withdrawal_tag(release))[0])
        except DeployError as error:
            if error.code == "registry.missing":
                return False
            raise

    def _delivered(self, release: RegistryRelease, options: DeliveryOptions) -> Outcome:
        return deliver(
            release, self._connect, target=self._reference, options=options, on_event=self._on_event, stop=self._stop
        )

    def _has_verdict(self, *, digest: str | None = None, release: str | None = None) -> bool:
        """Return whether what the tag names was left here, or had its verdict, and something serves."""
        if self._options.retry_bad:
            return False
        last, status = self.last, self._status()
        if release is None and last is not None:
            release = last.release_in(digest)
        if status.current is None:
            return False
        if release is not None and status.left == release:
            left = state_of(status).last
            result = ROLLED_BACK if left is not None and left.result == ROLLED_BACK else COMMITTED
            problem = None if left is None else left.reason
            self.judged = Settled(digest=self.digest, release=release, result=result, problem=problem)
        elif last is not None and last.is_judged(digest=digest, release=None if status.current == release else release):
            self.judged = last.settled
        else:
            return False
        self.release = None if self.judged is None else self.judged.release
        return True

    def _status(self) -> StatusAnswer:
        return self._asked(STATUS, Nothing())

    def _asked(self, verb: Verb[Q, A], request: Q) -> A:
        link = Link(self._connect(), self._stop)
        try:
            return link.ask(verb, request)
        finally:
            link.close()


def _now_text() -> str:
    """Return UTC as records have it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ended(work: _Pull, outcome: Outcome, reference: str) -> PullRecord:
    wait_s = outcome.evidence.get("retry_after_s") if outcome.code == BUSY else None
    record = PullRecord(
        reference=reference,
        digest=work.digest,
        release=work.release,
        result=outcome.result,
        code=outcome.code,
        problem=outcome.problem,
        at=_now_text(),
        looked_at=work.looked_at,
        is_basic=work.client.is_basic,
        not_before_s=time.time() + wait_s if isinstance(wait_s, float) else 0.0,
        trust_digest=work.trust_digest,
        statement=work.statement[0],
        statement_signature=work.statement[1],
    )
    if work.judged is None:
        return replace(record, settled=settled_by(record, before=work.last))
    told = replace(work.judged, digest=work.digest)
    return replace(record, result=told.result, code=told.code, problem=told.problem, settled=told)


def unasked(error: DeployError, reference: str, last: PullRecord | None) -> PullRecord:
    """Return what to remember of a pull that `error` has ended before the registry was asked."""
    if last is None or last.reference != reference:
        last = PullRecord(reference=reference, result="", at="")
    return replace(last, release=None, result="failed", code=error.code, problem=error.problem, at=_now_text())


def _nothing(release: str | None, reference: str) -> Outcome:
    return Outcome(target=reference, release=release, result="unchanged", exit_code=DONE)


def _kept(release: str | None, reference: str, why: str | None) -> Outcome:
    return Outcome(target=reference, release=release, result="kept", problem=why, exit_code=DONE)
