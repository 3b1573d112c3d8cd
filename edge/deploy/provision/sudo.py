"""Programs that root runs on a target, by its own sudo, which is told a password only where and when it asks for one.

A password is written once sudo's own question for it was seen, and what the program reads once the program itself has
said that it runs. So a sudo that asks nobody gets no password that it could hand on to a shell, and one that asks again
gets nothing that is meant for the program.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edge.deadline import Deadline
from edge.deploy.provision.process import child_of
from edge.transport.ssh_command import SshAddress, ssh_command

__all__ = ["RanAsRoot", "run_as_root"]

_LOOK_S = 0.2
_MOST_BYTES = 1 << 20  # what a login and sudo may say before the program runs
# Says that it runs, and becomes the program, to which it leaves its stdin.
_ANNOUNCE = ("sh", "-c", 'printf "%s\\n" "$0"; exec "$@"')


@dataclass(frozen=True, slots=True, kw_only=True)
class RanAsRoot:
    """How it ended.

    code: the program's, sudo's, or 255: ssh's own.
    has_run: sudo let the program run; `out` is all that it wrote.
    error: what program, sudo and ssh wrote on stderr.
    is_wrong: sudo did not take the password.
    """

    code: int
    out: bytes
    error: bytes
    has_run: bool
    is_wrong: bool


def run_as_root(
    address: SshAddress,
    command: Sequence[str],
    content: bytes,
    *,
    password: str | None,
    timeout_s: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> RanAsRoot:
    """Return how a command ended that root was to run there, given `content`.

    Args:
        address: the administrator's.
        command: word by word, not quoted.
        content: what the command reads from its stdin.
        password: the administrator's; None: sudo has to work without.
        timeout_s: for all of it.
        is_stopped: asked a few times a second whether to give up.

    Raises:
        ValueError: if the password has more than one line: the second one would not be sudo's.
        TimeoutError, InterruptedError: after the time, or once stopped; nothing of ours runs on this side then.
    """
    if password is not None and len(password.splitlines()) > 1:
        raise ValueError("a password has one line")
    prompt, ready = (f"edge-{word}-{secrets.token_hex(16)}" for word in ("password", "ready"))
    # -k: what was typed before, by whomever, does not count, and what we type does not either, afterwards.
    sudo = ["sudo", "-n"] if password is None else ["sudo", "-k", "-S", "-p", prompt]
    words = ["env", "LC_ALL=C", *sudo, "--", *_ANNOUNCE, ready, *command]
    deadline = Deadline.after(timeout_s)
    with child_of(ssh_command(address, [shlex.quote(word) for word in words])) as child:
        talk = _Talk(child=child, prompt=prompt.encode(), ready=ready.encode() + b"\n", password=password)
        while not talk.is_over:
            talk.hear()
            _look(deadline, is_stopped)
        given: bytes | None = content if talk.has_run else None
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, error = child.communicate(given, timeout=_LOOK_S)
                return talk.ended(out, error)
            given = None
            _look(deadline, is_stopped)


class _Talk:
    """What is said before the program runs: sudo's questions, our answer."""

    def __init__(self, *, child: subprocess.Popen[bytes], prompt: bytes, ready: bytes, password: str | None) -> None:
        self._child, self._prompt, self._ready, self._password = child, prompt, ready, password
        self._out, self._error = bytearray(), bytearray()
        self._open = {child.stdout: self._out, child.stderr: self._error}
        self._asked = 0

    @property
    def has_run(self) -> bool:
        """Whether the program has said that it runs."""
        return self._ready in self._out

    @property
    def is_over(self) -> bool:
        """Whether the program runs, or never will."""
        return self.has_run or not self._open

    def hear(self) -> None:
        """Hear for a moment what is said, and answer sudo's first question; a second one ends it."""
        with selectors.DefaultSelector() as selector:
            for pipe in self._open:
                selector.register(pipe, selectors.EVENT_READ)  # type: ignore[arg-type]
            for key, _ in selector.select(_LOOK_S):
                pipe = next(one for one in self._open if one is key.fileobj)
                part = os.read(key.fd, 1 << 16)
                self._open[pipe].extend(part)
                if not part or len(self._open[pipe]) > _MOST_BYTES:
                    del self._open[pipe]
        asked = self._error.count(self._prompt)
        if asked > self._asked and self._child.stdin is not None:
            self._asked = asked
            with contextlib.suppress(BrokenPipeError):
                if asked == 1 and self._password is not None:
                    self._child.stdin.write(self._password.encode() + b"\n")
                    self._child.stdin.flush()
                else:
                    self._child.stdin.close()
            if asked > 1:
                self._child.stdin = None

    def ended(self, out: bytes, error: bytes) -> RanAsRoot:
        """Return how it ended; `out` and `error` are what came after the program had said that it runs."""
        told = (bytes(self._error) + error).replace(self._prompt, b"")
        return RanAsRoot(
            code=self._child.returncode,
            out=bytes(self._out).partition(self._ready)[2] + out if self.has_run else b"",
            error=told,
            has_run=self.has_run,
            is_wrong=self._asked > 0 and not self.has_run and (self._asked > 1 or b"incorrect password" in told),
        )


def _look(deadline: Deadline, is_stopped: Callable[[], bool]) -> None:
    if is_stopped():
        raise InterruptedError
    if deadline.is_over:
        raise TimeoutError
