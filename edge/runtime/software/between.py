"""Stands between a client and an agent that a release has brought: passes bytes on, and tells how it ended.

It is what provision installed, for the length of the conversation. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edge.deadline import Deadline
from edge.runtime.software.account import Account, FrameTap
from edge.transport.frames import Message

__all__ = ["Patience", "between"]

_CHUNK_BYTES = 256 * 1024
_STEP_S = 0.5
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an agent may go on that no client listens to, seconds.

    Attributes:
        silence_s: without a byte either way, after which the client counts as gone.
        rest_s: for what it does when its client is gone: an agent gives its lock back at once.
        alone_s: for the requests that are finished without a client, by their verbs.
    """

    silence_s: float
    rest_s: float
    alone_s: Mapping[str, float]

    def left_s(self, account: Account) -> float:
        """Return how long it may go on from when its client was gone."""
        alone = account.goes_on_alone
        return self.rest_s if alone is None else self.alone_s.get(alone, self.rest_s)


class _Flow:
    """Bytes one way; `ended` once no more of them can come or be passed on."""

    def __init__(self, source: int, target: int, on_message: Callable[[Message], None]) -> None:
        self.source, self.target = source, target
        self._tap, self._on_message = FrameTap(), on_message
        self._held = bytearray()
        self._has_all = False
        self.is_over = False
        for descriptor in (source, target):
            os.set_blocking(descriptor, False)

    def wants(self) -> Iterator[tuple[int, int]]:
        if not self.is_over:
            yield (self.target, select.POLLOUT) if self._held else (self.source, select.POLLIN)

    def go_on(self) -> bool:
        """Pass on what can be passed on; return whether anything was."""
        if self.is_over:
            return False
        try:
            return self._write() if self._held else self._read()
        except BlockingIOError:
            return False
        except OSError:  # the other end is gone
            self.is_over = True
            return False

    def _read(self) -> bool:
        content = os.read(self.source, _CHUNK_BYTES)
        self.is_over = not content
        self._held += content
        for message in self._tap.take(content):
            self._on_message(message)
        return bool(content)

    def _write(self) -> bool:
        del self._held[: os.write(self.target, self._held)]
        return True


def between(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    client: tuple[int, int],
    patience: Patience,
) -> tuple[int, Account]:
    """Run an agent for the client at two descriptors; return its exit status and the account of the conversation.

    One that does not end in time after its client is ended. Whatever asks this process to end is told to the agent,
    which goes on where it has to.
    """
    account, own_pid = Account(), os.getpid()
    with subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(environment),
        bufsize=0,
        preexec_fn=lambda: _end_with(own_pid),
    ) as child:
        assert child.stdin is not None  # because PIPE was asked for
        assert child.stdout is not None
        for number in _SIGNALS:
            signal.signal(number, lambda received, _frame: child.send_signal(received))
        there = _Flow(client[0], child.stdin.fileno(), account.heard)
        back = _Flow(child.stdout.fileno(), client[1], account.answered)
        try:
            _converse(there, back, patience)
            account.is_left = there.is_over
            child.stdin.close()
            deadline = Deadline.after(patience.left_s(account))
            _hear_out(back, deadline)
            child.stdout.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(deadline.left_s)
        finally:
            if child.poll() is None:
                child.kill()
    return child.returncode, account


def _end_with(parent_pid: int) -> None:
    """Have the kernel end the agent where this process is killed: it may hang, and hold a lock that nobody takes back.

    An agent may be killed at any moment.
    """
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent_pid:  # killed before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)


def _converse(there: _Flow, back: _Flow, patience: Patience) -> None:
    """Return once either side has ended the conversation, or nobody says anything any more."""
    silence = Deadline.after(patience.silence_s)
    while not (there.is_over or back.is_over or silence.is_over):
        if _pass_on(there, back):
            silence = Deadline.after(patience.silence_s)


def _hear_out(back: _Flow, deadline: Deadline) -> None:
    """Pass on what an agent still says to a client that has ended its side."""
    while not (back.is_over or deadline.is_over):
        _pass_on(back)


def _pass_on(*flows: _Flow) -> bool:
    waiter = select.poll()
    for descriptor, event in (wanted for flow in flows for wanted in flow.wants()):
        waiter.register(descriptor, event)
    waiter.poll(_STEP_S * 1000)
    has_moved = [flow.go_on() for flow in flows]  # each has its turn
    return any(has_moved)
