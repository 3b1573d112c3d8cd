"""One connection of an agent: requests in, answers out; the lock, the release on offer, its lines in the audit logs."""

from __future__ import annotations

import base64
import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from edge.codec import encode
from edge.device.device import Device, Kind
from edge.device.facts import this_moment
from edge.device.lock import PushLock
from edge.device.state import Phase
from edge.device.units import Units
from edge.errors import DeployError
from edge.runtime.trial.trust import Signed
from edge.transport.channel import Blob, Channel, Frame, Message
from edge.untrusted import cleaned
from edge.wire.peer import DeviceHello, Nothing, Peer, Progress, problem_of, read_client_hello
from edge.wire.release import LockRequest
from edge.wire.verbs import Verb

__all__ = [
    "SILENCE_S",
    "ConnectionEnded",
    "Conversation",
    "Session",
    "bytes_of",
    "in_background",
    "lock",
    "ping",
]

SILENCE_S = 30.0
_STEP_S = 0.5
_REPORT_S = 1.0

T = TypeVar("T")
Q = TypeVar("Q")


class ConnectionEnded(Exception):  # noqa: N818 - an end, not always an error
    """The client is gone, or as good as gone; `error` says how."""

    def __init__(self, error: DeployError) -> None:
        super().__init__(str(error))
        self.error = error


class Conversation:
    """One connection; for one thread at a time.

    Every method that uses the connection raises `ConnectionEnded`, unless `go_on_alone` was called: from then on the
    work goes on with or without its client.
    """

    def __init__(self, channel: Channel, *, silence_s: float) -> None:
        self._channel = channel
        self._silence_s = silence_s
        self._heard_at = time.monotonic()
        self._number = 0
        self._client = Peer(is_device=False)
        self._is_alone = False
        self.is_gone = False

    def go_on_alone(self) -> None:
        """From now on neither the end of the connection nor a SIGTERM to the session that ends with it ends us."""
        self._is_alone = True
        if threading.current_thread() is threading.main_thread():
            for one in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(one, signal.SIG_IGN)

    def next_request(self) -> Message:
        """Return the next request, without its number; what is left of an interrupted blob is dropped."""
        while True:
            frame = self._receive()
            if isinstance(frame, Message):
                values = dict(frame.values)
                number = values.pop("id", 0)
                self._number = number if isinstance(number, int) else 0
                return Message(frame.verb, values)

    def meet(self, request: Message) -> None:
        """Raises `DeployError` `transfer.version`; `request.order` if it is no hello, `request.value` if a bad one."""
        if request.verb != "hello":
            raise DeployError("request.order", f"expected hello, got {_short(request.verb)}")
        self._client = read_client_hello(request.values)

    def read(self, verb: Verb[Q, Any], request: Message) -> Q:
        """DeployError `request.value`."""
        return self._client.read(verb.request, request.values, where=verb.name)

    def next_blob(self) -> bytes:
        """DeployError `request.order` where a request comes instead."""
        while True:
            frame = self._receive()
            if isinstance(frame, Blob):
                return frame.content
            self._only_a_ping(frame)

    def hello(self, hello: DeviceHello) -> None:
        self._send(Message("hello", encode(hello)))

    def ok(self, answer: object) -> None:
        """`answer` is a dataclass."""
        self._send(Message("ok", {"id": self._number, **encode(answer)}))

    def err(self, error: DeployError) -> None:
        self._send(_err(self._number, error))

    def progress(self, phase: str, done: float, total: float | None, note: str = "") -> None:
        progress = Progress(phase=phase, done=done, total=total, note=note)
        self._send(Message("progress", {"id": self._number, **encode(progress)}))

    def while_doing(
        self, work: Callable[[], T], *, phase: str, total_s: float | None, note: Callable[[], str] = lambda: ""
    ) -> T:
        """Return what `work` returns, done in another thread; the client hears of it each second and must be alive.

        With each second it hears `note`, too.

        When the client ends, `work` is left to its own deadline.
        """
        future = in_background(work)
        began = time.monotonic()
        told = 0.0
        while not future.done():
            elapsed = time.monotonic() - began
            if elapsed - told >= _REPORT_S:
                told = elapsed
                self.progress(phase, round(elapsed, 1), total_s, note())
            self._attend(future)
        return future.result()

    def _attend(self, future: Future[T]) -> None:
        """Wait a moment, for the client as well as for the work."""
        if self.is_gone:
            wait([future], timeout=_STEP_S)
            return
        try:
            frame = self._channel.receive(timeout_s=0)
        except DeployError as error:
            if error.code == "transfer.timeout" and time.monotonic() - self._heard_at < self._silence_s:
                wait([future], timeout=_STEP_S / 5)
                return
            self._end(error)
        else:
            self._heard_at = time.monotonic()
            self._only_a_ping(frame)

    def _only_a_ping(self, frame: Frame) -> None:
        if isinstance(frame, Blob):
            return
        number = frame.values.get("id", 0)
        if frame.verb == "ping":
            self._send(Message("ok", {"id": number}))
        else:
            error = DeployError("request.order", f"{_short(frame.verb)} came while another request was under way")
            self._send(_err(number, error))

    def _receive(self) -> Frame:
        try:
            frame = self._channel.receive(timeout_s=self._silence_s)
        except DeployError as error:
            raise ConnectionEnded(error) from None
        self._heard_at = time.monotonic()
        return frame

    def _send(self, message: Message) -> None:
        if self.is_gone:
            return
        try:
            self._channel.send(message, timeout_s=self._silence_s)
        except DeployError as error:
            self._end(error)
        except ValueError as error:
            # More than a frame holds, such as the health of ten thousand streams, or a number that is none: not an end
            # of the conversation.
            self._send(_err(self._number, DeployError("device.answer", f"the answer cannot be sent: {error}")))

    def _end(self, error: DeployError) -> None:
        self.is_gone = True
        if not self._is_alone:
            raise ConnectionEnded(error) from None


def _err(number: object, error: DeployError) -> Message:
    return Message("err", {"id": number, **encode(problem_of(error))})


def _short(verb: str) -> str:
    return cleaned(verb[:50])


def bytes_of(text: str, name: str) -> bytes:
    """DeployError `request.value` if `text` is no base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise DeployError("request.value", f"{name}: expected base64") from None


def in_background(work: Callable[[], T]) -> Future[T]:
    """Begin `work` in a thread that keeps no process alive; an executor's would."""
    future: Future[T] = Future()

    def fulfil() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # the border of a thread: raised again where the result is taken
            future.set_exception(error)

    threading.Thread(target=fulfil, daemon=True).start()
    return future


# A line is a write to the flash, and costs a client in a loop nothing. A push says about ten different things.
_MOST_LINES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """A line of an audit log, save its time and where it comes from."""

    who: str
    what: str
    release: str | None
    result: str
    kind: Kind


class _Tally:
    """Lines of one connection; `write` takes one, and how often it came.

    What changed something is always written. Of everything else the first is written at once; repeats, and whatever
    comes after 64 different lines, are counted, and `close` writes the counts. An agent that is killed loses them.
    """

    def __init__(self, write: Callable[[_Told, int], None]) -> None:
        self._write = write
        self._seen: set[_Told] = set()
        self._repeats: Counter[_Told] = Counter()

    def tell(self, told: _Told) -> None:
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


def _further(kind: Kind) -> _Told:
    return _Told(who="", what="others", release=None, result=f"more than {_MOST_LINES} different ones", kind=kind)


class Session:
    """One connection; the locks that it takes are given back with `close`, or when the process ends."""

    def __init__(self, talk: Conversation, device: Device, units: Units, *, origin: str) -> None:
        self.talk, self.device, self.units, self.origin = talk, device, units, origin
        self.who = ""
        self.offer: Signed | None = None
        self._held = contextlib.ExitStack()
        self._has_lock = self._is_fetching = False
        self._tally = _Tally(self._write)

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
        if not self.device.is_for_pull:
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
        self._tally.tell(_Told(who=self.who + signer, what=what, release=release, result=result, kind=kind))

    def _write(self, told: _Told, times: int) -> None:
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
            hint="wait for its verdict, which edge-deploy status shows; push --lock-wait waits itself",
            evidence={"release": state.target, "since": state.started_at},
        )
    return Nothing()


def ping(session: Session, request: Nothing) -> Nothing:
    return Nothing()
