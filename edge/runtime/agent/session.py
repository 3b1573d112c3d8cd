"""The state of one connection: its client, the lock, the release on offer, and its lines in the audit logs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from edge.device.audit import Kind
from edge.device.device import Device
from edge.device.facts import this_moment
from edge.device.lock import PushLock
from edge.device.state import Phase
from edge.device.units import Units
from edge.errors import DeployError
from edge.runtime.agent.conversation import Conversation
from edge.runtime.trial.trust import Signed
from edge.wire.peer import Nothing
from edge.wire.release import LockRequest
from edge.wire.verbs import Verb

__all__ = ["Session", "Tally", "Told", "lock", "ping"]

# A line is a write to the flash, and costs a client in a loop nothing. A push says about ten different things.
_MOST_LINES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A line of an audit log, save its time and where it comes from."""

    who: str
    what: str
    release: str | None
    result: str
    kind: Kind


class Tally:
    """Lines of one connection; `write` takes one, and how often it came.

    What changed something is always written. Of everything else the first is written at once; repeats, and whatever
    comes after 64 different lines, are counted, and `close` writes the counts. An agent that is killed loses them.
    """

    def __init__(self, write: Callable[[Told, int], None]) -> None:
        self._write = write
        self._seen: set[Told] = set()
        self._repeats: Counter[Told] = Counter()

    def tell(self, told: Told) -> None:
        """Write the line, or count it; DeployError `device.disk.*`."""
        if told.kind is Kind.CHANGE:
            self._write(told, 1)
        elif told in self._seen:
            self._repeats[told] += 1
        elif len(self._seen) < _MOST_LINES:
            self._seen.add(told)
            self._write(told, 1)
        else:
            self._repeats[_further(told.kind)] += 1

    def close(self) -> None:
        """DeployError `device.disk.*`."""
        for told, times in self._repeats.items():
            self._write(told, times)
        self._repeats.clear()


def _further(kind: Kind) -> Told:
    return Told(who="", what="others", release=None, result=f"more than {_MOST_LINES} different ones", kind=kind)


class Session:
    """One connection; the locks that it takes are given back with `close`, or when the process ends."""

    def __init__(self, talk: Conversation, device: Device, units: Units, *, origin: str, is_for_pull: bool) -> None:
        self.talk, self.device, self.units, self.origin = talk, device, units, origin
        self.is_for_pull = is_for_pull
        self.who = ""
        self.offer: Signed | None = None
        self._held = contextlib.ExitStack()
        self._has_lock = self._is_fetching = False
        self._tally = Tally(self._write)

    def take_lock(self, who: str, why: str) -> None:
        """Take the push lock, unless this session has it; DeployError `lock.held`.

        What was offered before has to be offered again: another client may have changed the device meanwhile.
        """
        if not self._has_lock:
            self._held.enter_context(PushLock(self.device.layout).acquire(who, why))
            self._has_lock, self.offer = True, None
        self.who = who

    def check_receives(self, verb: Verb[Any, Any]) -> None:
        """Raise DeployError `request.order` unless this session may bring blobs, `lock.held` if another pull fetches.

        A pull fetches without the push lock, which a slow registry would keep from a person.
        """
        if not self.is_for_pull:
            self.check_locked(verb)
        elif not self._is_fetching:
            lock = PushLock(self.device.layout, is_of_fetch=True)
            self._held.enter_context(lock.acquire("a pull", "fetching"))
            self._is_fetching = True

    @contextlib.contextmanager
    def locked(self, why: str) -> Iterator[None]:
        """Hold the push lock within the block, and go on holding it if it was held before; DeployError `lock.held`."""
        if self._has_lock:
            yield
        else:
            with PushLock(self.device.layout).acquire(self.who or "a pull", why):
                yield

    def close(self) -> None:
        """Give the lock back, and write down what was only counted."""
        self._has_lock = self._is_fetching = False
        self._held.close()
        with contextlib.suppress(DeployError):  # no client is left to answer; the first of each is written
            self._tally.close()

    def check_locked(self, verb: Verb[Any, Any]) -> None:
        """Raise DeployError `request.order` unless this session holds the push lock."""
        if not self._has_lock:
            raise DeployError("request.order", f"{verb.name}: only the holder of the lock may ask for it")

    def offered(self, verb: Verb[Any, Any], release: str) -> Signed:
        """Return the release that was put, if it is `release`; DeployError `request.order`."""
        self.check_locked(verb)
        if self.offer is None or self.offer.manifest.release != release:
            raise DeployError("request.order", f"{verb.name}: release {release[:20]} has not been offered")
        return self.offer

    def audit(self, what: str, result: str, *, kind: Kind) -> None:
        """Write a line of the audit log; with the signer's name once a signature has proven it."""
        signer = "" if self.offer is None else f" (signed by {self.offer.signer})"
        release = None if self.offer is None else self.offer.manifest.release
        self._tally.tell(Told(who=self.who + signer, what=what, release=release, result=result, kind=kind))

    def _write(self, told: Told, times: int) -> None:
        self.device.audit.write(**asdict(told), at=this_moment().at, origin=self.origin, times=times)


def lock(session: Session, request: LockRequest) -> Nothing:
    """Hold the push lock until the connection ends; while a release is on trial it takes `in_trial`.

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
    return Nothing()
