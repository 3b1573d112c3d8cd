"""Frames over two file descriptors: stdin and stdout of an agent, or the pipes to a child process."""

from __future__ import annotations

import contextlib
import os
import select

from edge.deadline import Deadline
from edge.errors import DeployError
from edge.transport.frames import Frame, encode_frame, read_frame
from edge.untrusted import cleaned

__all__ = ["PipeChannel"]

_READ_BYTES = 256 * 1024


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
        """Send a frame."""
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
        """Return the next frame."""
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
        """Close both descriptors, once."""
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
