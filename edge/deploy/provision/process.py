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
    mark = ready.encode() + b"\n"
    with _child_of(ssh_command(address, [shlex.quote(word) for word in words])) as child:
        before, questions, asked = _until_it_runs(child, prompt.encode(), mark, password, looks)
        has_run = mark in before
        out, error = _told(child, content if has_run else None, looks)
        error = (questions + error).replace(prompt.encode(), b"")
        return RanAsRoot(
            code=child.returncode,
            out=before.partition(mark)[2] + out if has_run else b"",
            error=error,
            has_run=has_run,
            is_wrong=asked > 0 and not has_run and (asked > 1 or b"incorrect password" in error),
        )


def _until_it_runs(
    child: subprocess.Popen[bytes], prompt: bytes, mark: bytes, password: str | None, looks: Iterator[None]
) -> tuple[bytes, bytes, int]:
    """Answer sudo's first question until the program has written `mark`, or never will; a second question ends it.

    Return what came on stdout and stderr, and how often sudo has asked.
    """
    out, error, asked = bytearray(), bytearray(), 0
    with selectors.DefaultSelector() as pipes:
        for pipe, told in ((child.stdout, out), (child.stderr, error)):
            assert pipe is not None
            pipes.register(pipe, selectors.EVENT_READ, told)
        while mark not in out and pipes.get_map():
            for key, _ in pipes.select(_LOOK_S):
                part = os.read(key.fd, 1 << 16)
                key.data.extend(part)
                if not part or len(key.data) > _MOST_BYTES:
                    pipes.unregister(key.fileobj)
            before, asked = asked, error.count(prompt)
            stdin = child.stdin
            if asked > before and stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    if asked == 1 and password is not None:
                        stdin.write(password.encode() + b"\n")
                        stdin.flush()
                    else:
                        child.stdin = None
                        stdin.close()
            next(looks)
    return bytes(out), bytes(error), asked
