"""The client's side of the wire: questions with one answer each, over a connection that may die and is made again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import chain, repeat
from typing import BinaryIO, TypeVar

from edge.codec import encode
from edge.deadline import NEVER, Deadline
from edge.errors import DeployError
from edge.transport.channel import Blob, Channel, Message
from edge.untrusted import cleaned
from edge.wire.peer import (
    PROVISION,
    REVISION,
    ClientHello,
    DeviceHello,
    Peer,
    Problem,
    Progress,
    error_of,
    read_device_hello,
)
from edge.wire.release import BlobRequest
from edge.wire.verbs import BLOB, Verb

__all__ = ["LATE", "Interrupted", "Link", "OnProgress", "Reach", "is_lost"]

SILENCE_S = 15.0  # the agent speaks every second while it works
GREETING_S = 30.0  # jump hosts and security keys take their time
PING_S = 5.0
_STEP_S = 0.2
LATE = "transfer.deadline"
_LATE_HINT = "look at edge-deploy status and edge-deploy logs; it goes on alone with what it has begun"
_CHUNK_BYTES = 256 * 1024
_WINDOW_BYTES = 1024 * 1024  # what a cut connection can cost; at a round trip of 50 ms still 20 MiB/s

# The connection is gone but may come back; not so with a key that is refused or a device without our software.
_PASSING = {"transfer.closed", "transfer.timeout", "transfer.ssh"}
_PASSING |= {"transfer.ssh.unreachable", "transfer.ssh.refused", "transfer.ssh.timeout"}
_PAUSES_S = (0.2, 0.5, 1.0, 2.0)
_LAST_PAUSE_S = 5.0


class Interrupted(Exception):  # noqa: N818 - a wish, not an error
    """The caller does not want to wait any longer."""


OnProgress = Callable[[Progress], None]

Q = TypeVar("Q")
A = TypeVar("A")


def is_lost(error: DeployError) -> bool:
    """Return whether `error` says that the connection is gone, and trying again may help."""
    return error.code in _PASSING


class Link:
    """A connection to an agent, from its hello on; for one thread. Owns the channel; `edge.wire` checks answers.

    All methods raise DeployError: `transfer.*`, the device's code for an `err`, `transfer.deadline` once `deadline` is
    over, whatever the device goes on to say; and Interrupted soon after `stop` was set.
    """

    def __init__(self, channel: Channel, stop: threading.Event, deadline: Deadline = NEVER) -> None:
        self._channel, self._stop, self._deadline = channel, stop, deadline
        self._number = 0
        self._spoke_at = time.monotonic()
        self._heard_at, self._patience_s = self._spoke_at, GREETING_S
        self.bytes_sent = 0
        self._device = Peer(is_device=True)
        try:
            self.hello = self._greet()
        except BaseException:
            channel.close()
            raise

    def close(self) -> None:
        """End the connection, and with it the lock."""
        self._channel.close()

    def ask(self, verb: Verb[Q, A], request: Q, on_progress: OnProgress | None = None) -> A:
        """DeployError `transfer.version` where the device is too old for what is asked."""
        self._request(verb, request)
        while True:
            frame = self._next()
            if frame is not None and (answer := self._answer(verb, frame, on_progress)) is not None:
                return answer

    def send_blob(
        self,
        sha256: str,
        content: BinaryIO,
        *,
        offset: int,
        length: int,
        on_progress: OnProgress = lambda progress: None,
    ) -> None:
        """Send the rest of a blob; never more than a window ahead of what the device has written."""
        written = offset

        def take(progress: Progress) -> None:
            nonlocal written
            if progress.phase == "blob":
                written = int(progress.done)
                on_progress(progress)

        def is_answered() -> bool:
            frame = self._next()
            return frame is not None and self._answer(BLOB, frame, take) is not None

        self._request(BLOB, BlobRequest(sha256=sha256, offset=offset, length=length - offset))
        content.seek(offset)
        while offset < length:
            while offset - written >= _WINDOW_BYTES:
                if is_answered():
                    return
            chunk = content.read(min(_CHUNK_BYTES, length - offset))
            if not chunk:
                raise DeployError("bundle.file", f"{content.name}: it is shorter than the manifest says")
            self._channel.send(Blob(chunk), timeout_s=SILENCE_S)
            self._spoke_at = time.monotonic()
            offset += len(chunk)
            self.bytes_sent += len(chunk)
        while not is_answered():
            pass

    def _greet(self) -> DeviceHello:
        frame = self._next()
        while frame is None:
            frame = self._next()
        if frame.verb == "err":
            # Before its hello nothing is known of the device: an agent that cannot even greet may be of any version.
            values = {name: value for name, value in frame.values.items() if name != "id"}
            raise error_of(Peer(is_device=True, revision=0).read(Problem, values, where="hello.err"))
        hello, self._device = read_device_hello(frame.values)
        self._channel.send(Message("hello", encode(ClientHello())))
        return hello

    def _request(self, verb: Verb[Q, A], request: Q) -> None:
        self._device.check_knows(request, verb=verb.name)
        self._number += 1
        self._send(Message(verb.name, {**encode(request), "id": self._number}))

    def _send(self, message: Message) -> None:
        self._channel.send(message, timeout_s=SILENCE_S)
        self._spoke_at = time.monotonic()

    def _next(self) -> Message | None:
        """Return the next message; None after a moment, so that the caller's wishes are heard."""
        if self._stop.is_set():
            raise Interrupted
        if self._deadline.is_over:
            raise DeployError(LATE, "the device has not come to an end in time", hint=_LATE_HINT)
        try:
            frame = self._channel.receive(timeout_s=_STEP_S)
        except DeployError as error:
            now = time.monotonic()
            if error.code != "transfer.timeout":
                raise
            if now - self._heard_at > self._patience_s:
                raise DeployError(error.code, f"the device has said nothing for {self._patience_s:g} s") from error
            if now - self._spoke_at > PING_S:
                self._send(Message("ping", {"id": -1}))
            return None
        self._heard_at, self._patience_s = time.monotonic(), SILENCE_S
        if not isinstance(frame, Message):
            raise DeployError("transfer.protocol", "the device sent bytes of a blob, expected a message")
        return frame

    def _answer(self, verb: Verb[Q, A], frame: Message, on_progress: OnProgress | None) -> A | None:
        values = dict(frame.values)
        if values.pop("id", None) != self._number:
            return None  # to a ping
        if frame.verb == "ok":
            return self._device.read(verb.answer, values, where=verb.name)
        if frame.verb == "err":
            raise error_of(self._device.read(Problem, values, where=f"{verb.name}.err"))
        if frame.verb != "progress":
            self._check_is_later(frame.verb)
            return None
        progress = self._device.read(Progress, values, where=f"{verb.name}.progress")
        if on_progress is not None:
            on_progress(progress)
        return None

    def _check_is_later(self, verb: str) -> None:
        if self._device.revision <= REVISION:
            problem = f"the device sent {cleaned(verb[:50])!r}, expected ok, err or progress"
            raise DeployError("transfer.protocol", problem, hint=PROVISION)


class Reach:
    """The one link to a device at a time; owns it."""

    def __init__(self, connect: Callable[[], Channel], stop: threading.Event, deadline: Deadline = NEVER) -> None:
        self._connect, self._stop, self._deadline = connect, stop, deadline
        self._link: Link | None = None
        self._sent_before = 0
        self.count = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes of blobs over all links."""
        return self._sent_before + (0 if self._link is None else self._link.bytes_sent)

    def link(self) -> Link:
        """Return the link, opened if there is none; DeployError `transfer.*`."""
        if self._link is None:
            self._link = Link(self._connect(), self._stop, self._deadline)
            self.count += 1
        return self._link

    def close(self) -> None:
        if self._link is not None:
            self._sent_before += self._link.bytes_sent
            self._link.close()
            self._link = None

    def again(self, lost: DeployError, *, until: Deadline) -> None:
        """Open another link until `until`, never longer than all may take; or raise the last error, Interrupted."""
        self.close()
        for pause_s in chain(_PAUSES_S, repeat(_LAST_PAUSE_S)):
            left_s = min(until.left_s, self._deadline.left_s)
            if left_s <= 0:
                raise lost
            if self._stop.wait(min(pause_s, left_s)):
                raise Interrupted
            try:
                self.link()
                return
            except DeployError as error:
                if not is_lost(error):
                    raise
                lost = error
