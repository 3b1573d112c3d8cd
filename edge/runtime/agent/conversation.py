"""The agent's side of the wire: requests in, answers out, and the client's life in between."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from edge.codec import encode
from edge.errors import DeployError
from edge.transport.channel import Blob, Channel, Frame, Message
from edge.untrusted import cleaned
from edge.wire.peer import DeviceHello, Peer, Progress, problem_of, read_client_hello
from edge.wire.verbs import Verb

__all__ = ["SILENCE_S", "ConnectionEnded", "Conversation", "in_background"]

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
