"""Connection between a push and an agent: frames `u32 length | u8 type | body`, big endian.

Type 0 is one JSON object, type 1 the bytes of a blob; `length` counts the type and the body. A peer that breaks a limit
is not answered: the connection ends.

They go over two file descriptors: of an agent, a child process, whose stderr is kept for error messages, or a socket.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from edge.deadline import Deadline
from edge.errors import DeployError
from edge.reading import json_object
from edge.untrusted import cleaned

__all__ = ["MAX_BLOB_BYTES", "MAX_JSON_BYTES", "Blob", "Channel", "ChildChannel", "Ending", "Frame", "Message",
           "PipeChannel", "connect_socket", "encode_frame", "read_frame"]  # fmt: skip

MAX_JSON_BYTES = 256 * 1024
MAX_BLOB_BYTES = 1024 * 1024
_MAX_DIGITS = 1000  # which numbers are fit is for `edge.wire` to say, which names the field
_HEAD = struct.Struct(">IB")
_JSON, _BLOB = 0, 1


@dataclass(frozen=True, slots=True)
class Message:
    """One JSON object; `verb` is its key "verb", `values` are the others."""

    verb: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Blob:
    """Some bytes of the blob that was announced before."""

    content: bytes


Frame = Message | Blob


def encode_frame(frame: Frame) -> bytes:
    """Return the frame as sent; ValueError if larger than the other side takes, or with a number that JSON lacks."""
    if isinstance(frame, Blob):
        kind, body, most = _BLOB, frame.content, MAX_BLOB_BYTES
    else:
        body = json.dumps({"verb": frame.verb, **frame.values}, separators=(",", ":"), allow_nan=False).encode()
        kind, most = _JSON, MAX_JSON_BYTES
    if len(body) > most:
        raise ValueError(f"a frame of {len(body)} bytes; at most {most} are allowed")
    return _HEAD.pack(len(body) + 1, kind) + body


def read_frame(read_exactly: Callable[[int], bytes]) -> Frame:
    """Return the next frame; `read_exactly(n)` returns n bytes or raises. DeployError `transfer.protocol` for none."""
    length, kind = _HEAD.unpack(read_exactly(_HEAD.size))
    most = {_JSON: MAX_JSON_BYTES, _BLOB: MAX_BLOB_BYTES}.get(kind)
    if most is None or not 1 <= length <= most + 1:
        raise _broken(f"a frame of type {kind} with {length} bytes")
    body = read_exactly(length - 1)
    return Blob(body) if kind == _BLOB else _message(body)


def _message(body: bytes) -> Message:
    try:
        values = json_object(body, most_digits=_MAX_DIGITS, is_finite=False)
    except ValueError as error:
        raise _broken(f"a frame that is no JSON: {error}") from None
    verb = values.pop("verb", None)
    if not isinstance(verb, str):
        raise _broken("a JSON frame without a verb")
    return Message(verb, values)


def _broken(what: str) -> DeployError:
    return DeployError(
        "transfer.protocol",
        f"the other side sent {what}, expected frames of edge-deploy",
        hint="check that nothing else prints on the connection (a login banner, a shell profile)",
    )


class Channel(Protocol):
    """A connection that carries whole frames in order, both ways, until one side closes it."""

    def send(self, frame: Frame, *, timeout_s: float = 30.0) -> None:
        """Send a frame; DeployError `transfer.*`, if the other side is gone or does not take it in time."""
        ...

    def receive(self, *, timeout_s: float = 30.0) -> Frame:
        """Return the next frame; DeployError `transfer.closed` at the end, `transfer.timeout`, `transfer.protocol`."""
        ...

    def close(self) -> None:
        """End the connection; the other side reads its end. May be called twice."""
        ...


_READ_BYTES = 256 * 1024
_KEPT_LINES = 20
_LINE_BYTES = 500
_GRACE_S = 2.0  # for the last words and the exit status of a child whose pipe has ended
_CLOSING_S = 0.4  # for a child whose pipes we have closed; a connection that is cut is the same to the other side

Ending = Callable[[int | None, Sequence[str]], DeployError | None]
"""Why a child ended: its exit status (None: it still runs) and last lines to an error; None: no more is known."""


class PipeChannel:
    """A `Channel` over descriptors that it owns and closes; for one thread at a time.

    After a `transfer.timeout` of `receive` the channel is as good as before: what has come of a frame is kept. After
    one of `send` it is not, because the other side waits for the rest of the frame; so it is closed then.
    """

    def __init__(self, read_descriptor: int, write_descriptor: int) -> None:
        self._read, self._write = read_descriptor, write_descriptor
        for descriptor in (read_descriptor, write_descriptor):
            os.set_blocking(descriptor, False)
        self._received = bytearray()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether this side has ended the connection."""
        return self._is_closed

    def send(self, frame: Frame, *, timeout_s: float = 30.0) -> None:
        if self._is_closed:
            raise _closed()
        deadline = Deadline.after(timeout_s)
        rest = memoryview(encode_frame(frame))
        while rest:
            try:
                rest = rest[os.write(self._write, rest) :]
            except BlockingIOError:
                self._wait_for_room(deadline, timeout_s)
            except OSError as error:
                raise _closed(error.strerror) from None

    def _wait_for_room(self, deadline: Deadline, timeout_s: float) -> None:
        if not _wait(self._write, select.POLLOUT, deadline):
            self.close()
            raise DeployError("transfer.timeout", f"the other side has taken nothing for {timeout_s:g} s")

    def receive(self, *, timeout_s: float = 30.0) -> Frame:
        if self._is_closed:
            raise _closed()
        deadline = Deadline.after(timeout_s)
        taken = 0

        def read_exactly(count: int) -> bytes:
            nonlocal taken
            while len(self._received) < taken + count:
                self._read_more(deadline, timeout_s)
            with memoryview(self._received) as view:
                part = bytes(view[taken : taken + count])
            taken += count
            return part

        try:
            frame = read_frame(read_exactly)
        except DeployError as error:
            if error.code == "transfer.protocol":
                received = bytes(self._received[:200]).decode("ascii", "backslashreplace")
                error.evidence.setdefault("received", cleaned(received))
                self.close()
            raise
        del self._received[:taken]
        return frame

    def _read_more(self, deadline: Deadline, timeout_s: float) -> None:
        if not _wait(self._read, select.POLLIN, deadline):
            raise DeployError("transfer.timeout", f"the other side has said nothing for {timeout_s:g} s")
        try:
            content = os.read(self._read, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise _closed(error.strerror) from None
        if not content:
            raise _closed("in the middle of a frame" if self._received else None)
        self._received += content

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for descriptor in {self._read, self._write}:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _wait(descriptor: int, event: int, deadline: Deadline) -> bool:
    # poll() also wakes up at a hang-up or an error; the read or write that follows says which.
    waiter = select.poll()
    waiter.register(descriptor, event)
    return bool(waiter.poll(deadline.left_s * 1000))


def _closed(how: str | None = None) -> DeployError:
    return DeployError("transfer.closed", "the other side has ended the connection" + (f" ({how})" if how else ""))


class ChildChannel:
    """A `Channel` to a process that it starts, and ends with the channel; the child never outlives its owner's stdin.

    The child is in a session of its own: a Ctrl-C at the terminal is for us, and must not cut the connection under a
    push that first wants to finish its step. DeployError `transfer.ssh`, if the program cannot be started.
    """

    def __init__(self, command: Sequence[str], *, ending: Ending = lambda status, lines: None) -> None:
        self._ending = ending
        try:
            self._child = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise DeployError(
                "transfer.ssh", f"{command[0]} cannot be started: {error.strerror}", hint="install it (openssh-client)"
            ) from None
        assert self._child.stdin is not None  # because PIPE was asked for
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._channel = PipeChannel(_take(self._child.stdout), _take(self._child.stdin))
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._listener = threading.Thread(target=self._listen, args=(self._child.stderr,), daemon=True)
        self._listener.start()

    def _listen(self, stderr: IO[bytes]) -> None:
        # Bounded in lines and in their length: the other machine decides how much it says.
        with stderr, contextlib.suppress(OSError, ValueError):
            while line := stderr.readline(_LINE_BYTES):
                self._lines.append(cleaned(line.decode("utf-8", "replace").rstrip()))

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, frame: Frame, *, timeout_s: float = 30.0) -> None:
        try:
            self._channel.send(frame, timeout_s=timeout_s)
        except DeployError as error:
            raise self._explained(error) from None

    def receive(self, *, timeout_s: float = 30.0) -> Frame:
        try:
            return self._channel.receive(timeout_s=timeout_s)
        except DeployError as error:
            raise self._explained(error) from None

    def _explained(self, error: DeployError) -> DeployError:
        if error.code != "transfer.closed" or self._channel.is_closed:
            return error
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_GRACE_S)
        self._listener.join(_GRACE_S)
        lines = [line for line in self._lines if line]
        return self._ending(self._child.poll(), lines) or DeployError(
            error.code, error.problem, hint=error.hint, evidence={**error.evidence, "stderr": lines[-5:]}
        )

    def close(self) -> None:
        """Close the pipes, wait for the child, ask it to end. Never kill: an armed agent rightly goes on alone."""
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_CLOSING_S)
        if self._child.poll() is None:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_CLOSING_S)
        if self._child.poll() is None:
            threading.Thread(target=self._child.wait, daemon=True).start()  # takes its exit status, whenever it ends


def _take(pipe: IO[bytes]) -> int:
    """Return a descriptor of our own for a pipe, so that exactly one owner closes it."""
    with pipe:
        return os.dup(pipe.fileno())


def connect_socket(path: Path) -> PipeChannel:
    """Return a `Channel` to the listener at `path`; DeployError `transfer.socket` if it is not there or refuses us."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        end.connect(str(path))
    except OSError as error:
        end.close()
        raise DeployError(
            "transfer.socket",
            f"{path}: {error.strerror}",
            hint="systemctl start edge-agent.socket; run it with sudo, or: systemctl start edge-pull",
        ) from None
    descriptor = end.detach()
    return PipeChannel(descriptor, descriptor)
