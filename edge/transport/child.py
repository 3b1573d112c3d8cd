"""Frames to a child process over its stdin and stdout; what it says on stderr is kept for the error message."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO

from edge.errors import DeployError
from edge.transport.frames import Frame
from edge.transport.pipe import PipeChannel
from edge.untrusted import cleaned

__all__ = ["ChildChannel", "Ending"]

_KEPT_LINES = 20
_LINE_BYTES = 500
_GRACE_S = 2.0  # for the last words and the exit status of a child whose pipe has ended
_CLOSING_S = 0.4  # for a child whose pipes we have closed; a connection that is cut is the same to the other side

Ending = Callable[[int | None, Sequence[str]], DeployError | None]
"""Why a child ended: its exit status (None: it still runs) and last lines to an error; None: no more is known."""


class ChildChannel:
    """A `Channel` to a process that it starts, and ends with the channel; the child never outlives its owner's stdin.

    The child is in a session of its own: a Ctrl-C at the terminal is for us, and must not cut the connection under a
    push that first wants to finish its step.

    Raises:
        DeployError: `transfer.ssh`, if the program cannot be started.
    """

    def __init__(self, command: Sequence[str], *, ending: Ending) -> None:
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
        """The child's process id."""
        return self._child.pid

    def send(self, frame: Frame, *, timeout_s: float = 30.0) -> None:
        """Send a frame."""
        try:
            self._channel.send(frame, timeout_s=timeout_s)
        except DeployError as error:
            raise self._explained(error) from None

    def receive(self, *, timeout_s: float = 30.0) -> Frame:
        """Return the next frame."""
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
        """Close the pipes, wait for the child to end by itself, and ask it to end if it does not.

        It is never killed: an agent that has armed a switch goes on alone, and is right to.
        """
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
