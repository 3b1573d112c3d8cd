"""What a compromised program can leave where another one expects its small file."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# A lease (fcntl(2)): whoever opens the file waits for up to /proc/sys/fs/lease-break-time, unless O_NONBLOCK.
_LEASE = """
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1], "r+b")
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""
# Grows as fast as it can be read, and starts again before it fills the disk.
_GROWING = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
length = 0
while True:
    length += os.write(descriptor, b" " * (1 << 20))
    if length == 16 << 20:
        print("held", flush=True)
    if length > 64 << 20:
        os.lseek(descriptor, 16 << 20, os.SEEK_SET)
        length = 16 << 20
"""


@contextlib.contextmanager
def _program(text: str, path: Path) -> Iterator[None]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-c", text, str(path)], **pipes)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n", "the file cannot be held on this kernel"
        yield
    finally:
        process.kill()
        process.communicate()


def _fifo(path: Path) -> None:
    os.mkfifo(path, 0o666)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link(path: Path) -> None:
    other = path.with_name("another")  # no file of this machine: a mend that is missing would write through the link
    other.write_text("root:x:0:0:root:/root:/bin/bash\n")
    path.symlink_to(other)


def _link_to_fifo(path: Path) -> None:
    other = path.with_name("other")
    if not other.exists():
        os.mkfifo(other)
    path.symlink_to(other)


def _folder(path: Path) -> None:
    (path / "filled").mkdir(parents=True)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def _nested(path: Path) -> None:
    path.write_bytes(b"[" * 100_000 + b"]" * 100_000)


def _nested_value(path: Path) -> None:
    path.write_bytes(b'{"streams": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}")


def _digits(path: Path) -> None:
    path.write_bytes(b'{"at_boottime_ns": ' + b"9" * 2_000_000 + b"}")


def _no_json(path: Path) -> None:
    path.write_bytes(os.urandom(1000))


LEFT: dict[str, Callable[[Path], None]] = {
    "a FIFO": _fifo,
    "a link to an endless file": _endless,
    "a link to a FIFO": _link_to_fifo,
    "a link": _link,
    "a folder": _folder,
    "a socket": _socket,
    "a sparse file of a terabyte": _sparse,
    "deeply nested lists": _nested,
    "deeply nested objects": _nested_value,
    "a number of two million digits": _digits,
    "no JSON": _no_json,
}
"""What lies there by itself."""

_HELD = {"a leased file": _LEASE, "a growing file": _GROWING}
ODD = (*LEFT, *_HELD)
"""All of them, by name."""


@contextlib.contextmanager
def odd_file(what: str, path: Path) -> Iterator[None]:
    """Put `what` in the place of `path` for the length of the block."""
    path.unlink(missing_ok=True)
    if what in LEFT:
        LEFT[what](path)
        yield
        return
    path.touch()
    with _program(_HELD[what], path):
        yield
