"""Listening sockets that only this machine, or only one group of it, can reach."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LOOPBACK", "bind_port", "bind_socket_file", "short_name"]

LOOPBACK = "127.0.0.1"
_BACKLOG = 256


def bind_port(port: int) -> socket.socket:
    """Return a listening TCP socket on the loopback address; port 0 takes a free one.

    Raises:
        OSError: if the port is taken.
    """
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((LOOPBACK, port))
        bound.listen(_BACKLOG)  # at once: until then a second one could be bound to the same port
        stack.pop_all()
        return bound


def bind_socket_file(path: Path) -> socket.socket:
    """Return a listening socket at `path`, for its owner and group; one that was left there is replaced.

    Raises:
        OSError: if its folder is not there or cannot be written.
    """
    partial = path.with_name(f".{path.name}.part")
    partial.unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
        with short_name(partial) as name:
            bound.bind(name)
        bound.listen(_BACKLOG)
        partial.chmod(0o660)  # until now the umask ruled, which lets in fewer
        partial.replace(path)  # whoever finds it finds one that answers
        stack.pop_all()
        return bound


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Give a name of the socket file that has room in an address, which holds 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
