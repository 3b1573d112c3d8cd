"""Child processes of a provision: in sessions of their own, and ended when somebody says stop or a deadline comes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from edge.deadline import Deadline
from edge.delivery.link import Interrupted

__all__ = ["child_of", "run_until", "send_tar"]

_LOOK_S = 0.2
Ran = subprocess.CompletedProcess[bytes]


def run_until(command: Sequence[str], content: bytes, *, timeout_s: float, stop: threading.Event) -> Ran:
    """Return how it ended; raise Interrupted within a second of `stop`, subprocess.TimeoutExpired after `timeout_s`."""
    with child_of(command) as child:
        given: bytes | None = content
        for _ in _looks(command, timeout_s=timeout_s, stop=stop):
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, error = child.communicate(given, timeout=_LOOK_S)
                return Ran(command, child.returncode, out, error)
            given = None
    raise AssertionError("the looks do not end")


def send_tar(
    command: Sequence[str],
    paths: Sequence[Path],
    *,
    on_bytes: Callable[[int], None],
    timeout_s: float,
    stop: threading.Event,
) -> tuple[Ran, int]:
    """Return how a command ended that was given a tar stream, and the bytes that it took; raises as `run_until`."""
    with tempfile.TemporaryFile() as told, child_of(command, stdout=subprocess.DEVNULL, stderr=told) as child:
        assert child.stdin is not None
        counted, child.stdin = _Counted(child.stdin), None  # the feeder's own: nothing closes it while it writes
        feeder = threading.Thread(target=_feed, args=(counted, tuple(paths)), daemon=True)
        feeder.start()
        for _ in _looks(command, timeout_s=timeout_s, stop=stop):
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
def child_of(
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


def _looks(command: Sequence[str], *, timeout_s: float, stop: threading.Event) -> Iterator[None]:
    until = Deadline.after(timeout_s)
    while True:
        yield
        if stop.is_set():
            raise Interrupted
        if until.is_over:
            raise subprocess.TimeoutExpired(list(command), timeout_s)
