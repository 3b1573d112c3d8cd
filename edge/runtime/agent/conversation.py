"""The agent's side of the wire: requests in, answers out, and the client's life in between."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from edge.errors import DeployError
from edge.transport.channel import Channel
from edge.transport.frames import Blob, Frame, Message

__all__ = ["SILENCE_S", "ConnectionEnded", "Conversation", "Request", "number_of", "text_of"]

SILENCE_S = 30.0
_STEP_S = 0.5
_REPORT_S = 1.0

T = TypeVar("T")


class ConnectionEnded(Exception):  # noqa: N818 - an end, not always an error
    """The client is gone, or as good as gone; `error` says how."""

    def __init__(self, error: DeployError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for; its answers carry the same `number`."""

    verb: str
    number: int
    values: Mapping[str, Any]


def text_of(request: Request, name: str, *, most: int = 1000) -> str:
    """Return a text of the request; DeployError `request.value` if there is none."""
    value = request.values.get(name)
    if not isinstance(value, str) or len(value) > most:
        raise DeployError("request.value", f"{request.verb}: expected {name} as a text of at most {most} characters")
    return value


def number_of(request: Request, name: str, *, most: int) -> int:
    """Return a count of the request; DeployError `request.value` if there is none."""
    value = request.values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise DeployError("request.value", f"{request.verb}: expected {name} as a whole number from 0 to {most}")
    return value


class Conversation:
    """One connection; for one thread at a time.

    Every method that uses the connection raises `ConnectionEnded`, unless `go_on_alone` was called: from then on the
    work goes on whether or not somebody listens.
    """

    def __init__(self, channel: Channel, *, silence_s: float = SILENCE_S) -> None:
        self._channel = channel
        self._silence_s = silence_s
        self._heard_at = time.monotonic()
        self._number = 0
        self._is_alone = False
        self.is_gone = False

    def go_on_alone(self) -> None:
        """From now on neither the end of the connection nor a SIGTERM to the session that ends with it ends us."""
        self._is_alone = True
        if threading.current_thread() is threading.main_thread():
            for one in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(one, signal.SIG_IGN)

    def next_request(self) -> Request:
        """Return the next request; what is left of an interrupted blob is dropped."""
        while True:
            frame = self._receive(self._silence_s)
            if isinstance(frame, Message):
                return self._opened(frame)

    def _opened(self, message: Message) -> Request:
        number = message.values.get("id", 0)
        self._number = number if isinstance(number, int) else 0
        return Request(message.verb, self._number, message.values)

    def next_blob(self) -> bytes:
        """Return the next bytes of the blob that was announced; DeployError `request.order` for a request."""
        while True:
            frame = self._receive(self._silence_s)
            if isinstance(frame, Blob):
                return frame.content
            self._only_a_ping(frame)

    def hello(self, values: Mapping[str, Any]) -> None:
        """Say who we are."""
        self._send(Message("hello", dict(values)))

    def ok(self, values: Mapping[str, Any]) -> None:
        """End the request well."""
        self._send(Message("ok", {"id": self._number, **values}))

    def err(self, error: DeployError) -> None:
        """End the request with an error."""
        evidence = json.loads(json.dumps(error.evidence, default=str))
        values = {"code": error.code, "problem": error.problem, "hint": error.hint, "evidence": evidence}
        self._send(Message("err", {"id": self._number, **values}))

    def progress(self, phase: str, done: float, total: float | None, note: str = "") -> None:
        """Tell how far the request is."""
        values = {"phase": phase, "done": done, "total": total, "note": note}
        self._send(Message("progress", {"id": self._number, **values}))

    def while_doing(
        self, work: Callable[[], T], *, phase: str, total_s: float | None, note: Callable[[], str] = lambda: ""
    ) -> T:
        """Return what `work` returns, done in another thread; the client hears of it each second and must be alive.

        With each second it hears `note`, too.

        When the client ends, `work` is left to its own deadline.
        """
        future: Future[T] = Future()
        threading.Thread(target=_fulfil, args=(future, work), daemon=True).start()
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
            _wait_for(future, _STEP_S)
            return
        try:
            frame = self._channel.receive(timeout_s=0)
        except DeployError as error:
            if error.code == "transfer.timeout" and time.monotonic() - self._heard_at < self._silence_s:
                _wait_for(future, _STEP_S / 5)
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
            error = DeployError("request.order", f"{frame.verb[:50]} came while another request was under way")
            self._send(Message("err", {"id": number, "code": error.code, "problem": error.problem}))

    def _receive(self, timeout_s: float) -> Frame:
        try:
            frame = self._channel.receive(timeout_s=timeout_s)
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
            # More than a frame holds, such as the health of ten thousand streams: not an end of the conversation.
            large = DeployError("device.answer", f"the answer is too large: {error}")
            self._send(Message("err", {"id": self._number, "code": large.code, "problem": large.problem}))

    def _end(self, error: DeployError) -> None:
        self.is_gone = True
        if not self._is_alone:
            raise ConnectionEnded(error) from None


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # the border of a thread: raised again where the result is taken
        future.set_exception(error)


def _wait_for(future: Future[T], timeout_s: float) -> None:
    wait([future], timeout=timeout_s)
