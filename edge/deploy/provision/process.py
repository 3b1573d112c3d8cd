"""Child processes of a provision: in sessions of their own, and ended when somebody says stop or a deadline comes.

A password is written once sudo's own question for it was seen, and what the program reads once the program itself
has said that it runs. So a sudo that asks for none gets no password that it could hand on to a shell, and one that
asks again gets nothing that is meant for the program.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shlex
import signal
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edge.deadline import Deadline
from edge.delivery.link import Interrupted
from edge.errors import DeployError
from edge.transport.ssh import SshAddress, ssh_command

__all__ = ["RanAsRoot", "run_as_root", "run_until", "send_tar"]

_LOOK_S = 0.2
Ran = subprocess.CompletedProcess[bytes]


def run_until(command: Sequence[str], content: bytes, *, host: str, timeout_s: float, stop: threading.Event) -> Ran:
    """Return how it ended; raise Interrupted within a second of `stop`.

    DeployError `transfer.timeout` of `host` after `timeout_s`.
    """
    with _child_of(command) as child:
        out, error = _told(child, content, _looks(host, timeout_s=timeout_s, stop=stop))
        return Ran(command, child.returncode, out, error)


def send_tar(
    command: Sequence[str],
    paths: Sequence[Path],
    *,
    on_bytes: Callable[[int], None],
    host: str,
    timeout_s: float,
    stop: threading.Event,
) -> tuple[Ran, int]:
    """Return how a command ended that was given a tar stream, and the bytes that it took; raises as `run_until`."""
    with tempfile.TemporaryFile() as told, _child_of(command, stdout=subprocess.DEVNULL, stderr=told) as child:
        assert child.stdin is not None
        counted, child.stdin = _Counted(child.stdin), None  # the feeder's own: nothing closes it while it writes
        feeder = threading.Thread(target=_feed, args=(counted, tuple(paths)), daemon=True)
        feeder.start()
        for _ in _looks(host, timeout_s=timeout_s, stop=stop):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_LOOK_S)
                break
            on_bytes(counted.count)
        feeder.join()
        told.seek(0)
        return Ran(command, child.returncode, b"", told.read()), counted.count


class _Counted:
    """A pipe to write to, and how many bytes it has taken."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.pipe, self.count = pipe, 0

    def write(self, content: bytes) -> int:
        written = self.pipe.write(content)
        self.count += len(content)
        return written


def _feed(counted: _Counted, paths: Sequence[Path]) -> None:
    ended = contextlib.suppress(OSError)  # the command has ended; how, its status says
    with ended, counted.pipe, tarfile.open(fileobj=counted, mode="w|") as packing:  # type: ignore[call-overload]
        for path in paths:
            packing.add(path, arcname=path.name, recursive=False)


@contextlib.contextmanager
def _child_of(
    command: Sequence[str], *, stdout: int = subprocess.PIPE, stderr: int | IO[bytes] = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command that Ctrl-C at the terminal does not reach; nothing of it outlives the block."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, start_new_session=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _told(child: subprocess.Popen[bytes], content: bytes | None, looks: Iterator[None]) -> tuple[bytes, bytes]:
    """Give a command its content; return its output and its errors, once it has ended."""
    for _ in looks:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.communicate(content, timeout=_LOOK_S)
        content = None
    raise AssertionError("the looks do not end")


def _looks(host: str, *, timeout_s: float, stop: threading.Event) -> Iterator[None]:
    until = Deadline.after(timeout_s)
    while True:
        yield
        if stop.is_set():
            raise Interrupted
        if until.is_over:
            raise DeployError("transfer.timeout", f"{host} has not answered within {timeout_s:g} s", hint="try again")


_MOST_BYTES = 1 << 20  # what a login and sudo may say before the program runs
# Says that it runs, and becomes the program, to which it leaves its stdin.
_ANNOUNCE = ("sh", "-c", 'printf "%s\\n" "$0"; exec "$@"')


@dataclass(frozen=True, slots=True, kw_only=True)
class RanAsRoot:
    """How it ended: `code` is the program's, sudo's, or 255: ssh's own; `out` and `error` its output, sudo's and ssh's.

    `has_run`: sudo let the program run. `is_wrong`: sudo did not take the password.
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
    stop: threading.Event,
) -> RanAsRoot:
    """Return how `command` (words, not quoted) ended as root, given `content` on stdin; `password` None: sudo without.

    The password has one line: a second one would not be sudo's. Raises as `run_until`.
    """
    prompt, ready = (f"edge-{word}-{secrets.token_hex(16)}" for word in ("password", "ready"))
    # -k: what was typed before, by whomever, does not count, and what we type does not either, afterwards.
    sudo = ["sudo", "-n"] if password is None else ["sudo", "-k", "-S", "-p", prompt]
    words = ["env", "LC_ALL=C", *sudo, "--", *_ANNOUNCE, ready, *command]
    looks = _looks(address.host, timeout_s=timeout_s, stop=stop)
    command = ssh_command(address, [shlex.quote(word) for word in words])
    with _child_of(command) as child, selectors.DefaultSelector() as pipes:
        talk = _Talk(child, pipes, prompt=prompt.encode(), ready=ready.encode() + b"\n", password=password)
        while not talk.is_over:
            talk.hear()
            next(looks)
        out, error = _told(child, content if talk.has_run else None, looks)
        return talk.ended(out, error)


class _Talk:
    """Dialogue before the program runs: sudo's questions, our answer."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        pipes: selectors.BaseSelector,
        *,
        prompt: bytes,
        ready: bytes,
        password: str | None,
    ) -> None:
        self._child, self._pipes, self._prompt, self._ready, self._password = child, pipes, prompt, ready, password
        self._out, self._error = bytearray(), bytearray()
        for pipe, told in ((child.stdout, self._out), (child.stderr, self._error)):
            assert pipe is not None
            pipes.register(pipe, selectors.EVENT_READ, told)
        self._asked = 0

    @property
    def has_run(self) -> bool:
        return self._ready in self._out

    @property
    def is_over(self) -> bool:
        """Whether the program runs, or never will."""
        return self.has_run or not self._pipes.get_map()

    def hear(self) -> None:
        """Hear for a moment what is said, and answer sudo's first question; a second one ends it."""
        for key, _ in self._pipes.select(_LOOK_S):
            part = os.read(key.fd, 1 << 16)
            key.data.extend(part)
            if not part or len(key.data) > _MOST_BYTES:
                self._pipes.unregister(key.fileobj)
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
