"""The client's side of the wire: questions with one answer each, over a connection that may die at any moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from edge.errors import DeployError
from edge.transport.channel import Channel
from edge.transport.frames import PROTOCOL, Blob, Message
from edge.version import __version__

__all__ = ["Interrupted", "Link", "OnProgress", "Progress", "is_lost"]

SILENCE_S = 15.0  # the agent speaks every second while it works
GREETING_S = 30.0  # jump hosts and security keys take their time
PING_S = 5.0
_STEP_S = 0.2
_CHUNK_BYTES = 256 * 1024
_WINDOW_BYTES = 1024 * 1024  # what a cut connection can cost; at a round trip of 50 ms still 20 MiB/s

# The connection is gone but may come back; not so with a key that is refused or a device without our software.
_PASSING = {"transfer.closed", "transfer.timeout", "transfer.ssh"}
_PASSING |= {"transfer.ssh.unreachable", "transfer.ssh.refused", "transfer.ssh.timeout"}


class Interrupted(Exception):  # noqa: N818 - a wish, not an error
    """The caller does not want to wait any longer."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request is; `done` of `total` bytes or seconds."""

    phase: str
    done: float
    total: float | None


OnProgress = Callable[[Progress], None]


def is_lost(error: DeployError) -> bool:
    """Return whether `error` says that the connection is gone, and trying again may help."""
    return error.code in _PASSING


class Link:
    """A connection to an agent, from its hello on; for one thread. Owns and closes the channel.

    Raises (from the constructor and from every method):
        DeployError: `transfer.*`; what the device answers with `err`, with the device's code.
        Interrupted: soon after `stop` was set.
    """

    def __init__(self, channel: Channel, stop: threading.Event) -> None:
        self._channel, self._stop = channel, stop
        self._number = 0
        self._spoke_at = time.monotonic()
        self._heard_at = self._spoke_at + GREETING_S - SILENCE_S
        self.bytes_sent = 0
        try:
            self.hello = self._greet()
        except BaseException:
            channel.close()
            raise

    def close(self) -> None:
        """End the connection, and with it the lock."""
        self._channel.close()

    def ask(self, verb: str, values: Mapping[str, Any] | None = None, on_progress: OnProgress | None = None) -> Any:
        """Return the values of the answer."""
        self._request(verb, values or {})
        while True:
            frame = self._next()
            if frame is not None and (answer := self._answer(frame, on_progress)) is not None:
                return answer

    def send_blob(
        self, sha256: str, content: BinaryIO, *, offset: int, length: int, on_progress: OnProgress | None = None
    ) -> None:
        """Send the rest of a blob; never more than a window ahead of what the device has written."""
        self._request("blob", {"sha256": sha256, "offset": offset, "length": length - offset})
        content.seek(offset)
        written = Written(offset, on_progress)
        while offset < length:
            while offset - written.bytes >= _WINDOW_BYTES:
                if self._is_ended(self._next(), written):
                    return
            chunk = content.read(min(_CHUNK_BYTES, length - offset))
            if not chunk:
                raise DeployError("bundle.file", f"{content.name}: it is shorter than the manifest says")
            self._channel.send(Blob(chunk), timeout_s=SILENCE_S)
            self._spoke_at = time.monotonic()
            offset += len(chunk)
            self.bytes_sent += len(chunk)
        while not self._is_ended(self._next(), written):
            pass

    def _is_ended(self, frame: Message | None, written: Written) -> bool:
        return frame is not None and self._answer(frame, written) is not None

    def _greet(self) -> Mapping[str, Any]:
        frame = self._next()
        while frame is None:
            frame = self._next()
        if frame.verb == "err":
            raise _error_of(frame.values)
        if frame.verb != "hello" or frame.values.get("protocol") != PROTOCOL:
            raise DeployError(
                "transfer.version",
                f"expected a device that speaks protocol {PROTOCOL}, got {frame.values.get('protocol')} "
                f"of version {frame.values.get('software')}",
                hint="run: edge-deploy provision, with the same edge-deploy that pushes",
            )
        self._channel.send(Message("hello", {"protocol": PROTOCOL, "software": __version__}))
        return frame.values

    def _request(self, verb: str, values: Mapping[str, Any]) -> None:
        self._number += 1
        self._send(Message(verb, {**values, "id": self._number}))

    def _send(self, message: Message) -> None:
        self._channel.send(message, timeout_s=SILENCE_S)
        self._spoke_at = time.monotonic()

    def _next(self) -> Message | None:
        """Return the next message; None after a moment, so that the caller's wishes are heard."""
        if self._stop.is_set():
            raise Interrupted
        try:
            frame = self._channel.receive(timeout_s=_STEP_S)
        except DeployError as error:
            now = time.monotonic()
            if error.code != "transfer.timeout" or now - self._heard_at > SILENCE_S:
                raise
            if now - self._spoke_at > PING_S:
                self._send(Message("ping", {"id": -1}))
            return None
        self._heard_at = time.monotonic()
        if not isinstance(frame, Message):
            raise DeployError("transfer.protocol", "the device sent bytes of a blob, expected a message")
        return frame

    def _answer(self, frame: Message, on_progress: OnProgress | None) -> Mapping[str, Any] | None:
        if frame.values.get("id") != self._number:
            return None  # to a ping
        if frame.verb == "err":
            raise _error_of(frame.values)
        if frame.verb == "progress" and on_progress is not None:
            on_progress(_progress_of(frame.values))
        return frame.values if frame.verb == "ok" else None


class Written:
    """Counts what the device has written of a blob, and tells whoever wants to know."""

    def __init__(self, offset: int, on_progress: OnProgress | None) -> None:
        self.bytes = offset
        self._on_progress = on_progress

    def __call__(self, progress: Progress) -> None:
        """Take a progress of the device."""
        if progress.phase == "blob":
            self.bytes = int(progress.done)
            if self._on_progress is not None:
                self._on_progress(progress)


def _progress_of(values: Mapping[str, Any]) -> Progress:
    done, total = values.get("done"), values.get("total")
    return Progress(
        phase=str(values.get("phase", "")),
        done=done if isinstance(done, (int, float)) else 0,
        total=total if isinstance(total, (int, float)) else None,
    )


def _error_of(values: Mapping[str, Any]) -> DeployError:
    hint, evidence = values.get("hint"), values.get("evidence")
    error = DeployError(
        str(values.get("code", "")),
        str(values.get("problem", "the device did not say why")),
        hint=hint if isinstance(hint, str) else None,
        evidence=evidence if isinstance(evidence, dict) else None,
    )
    try:
        _ = error.exit_code
    except KeyError:  # of a newer version
        error.evidence["code"], error.code = error.code, "device.unknown"
    return error
