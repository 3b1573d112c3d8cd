"""What one connection has come to: who it is, whether it holds the lock, and which release it offers."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from typing import Any

from edge.bundle.manifest import Manifest
from edge.device.audit import Kind
from edge.device.device import Device
from edge.device.facts import gather_facts
from edge.device.lock import PushLock
from edge.device.moment import this_moment
from edge.device.state import Phase
from edge.device.units import Units
from edge.errors import DeployError
from edge.runtime.agent.conversation import Conversation
from edge.runtime.agent.tally import Tally, Told
from edge.wire.ending import Nothing
from edge.wire.facts import FactsAnswer
from edge.wire.hello import DeviceHello
from edge.wire.sending import LockRequest
from edge.wire.verbs import Verb

__all__ = ["Offer", "Session", "facts_of", "greeting", "lock", "ping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A release whose signature has been verified: `signer` is the name that the device knows the key by.

    `is_downgrade`: it was signed as a permission to go back.
    """

    manifest: Manifest
    content: bytes
    signature: bytes
    signer: str
    is_downgrade: bool = False

    @property
    def lengths(self) -> dict[str, int]:
        """Length in bytes of each blob."""
        return {one.sha256: one.length_bytes for one in self.manifest.files}


class Session:
    """One connection; the push lock that it takes is given back with `close`, or when the process ends."""

    def __init__(
        self, talk: Conversation, device: Device, units: Units, *, origin: str, is_for_pull: bool = False
    ) -> None:
        self.talk, self.device, self.units, self.origin = talk, device, units, origin
        self.is_for_pull = is_for_pull
        self.who = ""
        self.offer: Offer | None = None
        self._held = contextlib.ExitStack()
        self._has_lock = False
        self._tally = Tally(self._write)

    def take_lock(self, who: str, why: str) -> None:
        """Take the push lock, unless this session has it; DeployError `lock.held`."""
        if not self._has_lock:
            self._held.enter_context(PushLock(self.device.layout).acquire(who, why))
            self._has_lock = True
        self.who = who

    def close(self) -> None:
        """Give the lock back, and write down what was only counted."""
        self._has_lock = False
        self._held.close()
        with contextlib.suppress(DeployError):  # nobody is left to be told; the first of each is written
            self._tally.close()

    def check_locked(self, verb: Verb[Any, Any]) -> None:
        """Raise DeployError `request.order` unless this session holds the push lock."""
        if not self._has_lock:
            raise DeployError("request.order", f"{verb.name}: only the holder of the lock may ask for it")

    def offered(self, verb: Verb[Any, Any], release: str) -> Offer:
        """Return the release that was put, if it is `release`; DeployError `request.order`."""
        self.check_locked(verb)
        if self.offer is None or self.offer.manifest.release != release:
            raise DeployError("request.order", f"{verb.name}: release {release[:20]} has not been offered")
        return self.offer

    def audit(self, what: str, result: str, *, kind: Kind) -> None:
        """Write down who did what; with the signer's name once a signature has proven it."""
        signer = "" if self.offer is None else f" (signed by {self.offer.signer})"
        release = None if self.offer is None else self.offer.manifest.release
        self._tally.tell(Told(who=self.who + signer, what=what, release=release, result=result, kind=kind))

    def _write(self, told: Told, times: int) -> None:
        self.device.audit.write(**asdict(told), at=this_moment().at, origin=self.origin, times=times)


def greeting(device: Device) -> DeviceHello:
    """Return the first frame: what speaks here, and what it stands on."""
    return DeviceHello(facts=facts_of(device), current=device.releases.current())


def facts_of(device: Device) -> FactsAnswer:
    """Return what the device measures of itself."""
    return FactsAnswer(**asdict(gather_facts(device.layout)))


def lock(session: Session, request: LockRequest) -> Nothing:
    """Hold the push lock until the connection ends; while a release is on trial only who says `in_trial` gets it.

    That is a person who wants to go back; a push would only be in the way of the verdict.
    """
    session.take_lock(request.who, request.why)
    state = session.device.state()
    if state.phase is Phase.TRIAL and not request.in_trial:
        session.close()
        raise DeployError(
            "lock.trial",
            f"release {state.target} is on trial since {state.started_at}",
            hint="wait for its verdict (edge-deploy status), or give --lock-wait",
            evidence={"release": state.target, "since": state.started_at},
        )
    return Nothing()


def ping(session: Session, request: Nothing) -> Nothing:
    """Say that we are there."""
    return Nothing()
