"""JSON Lines: each message's payload as one line of a file or of standard output.

A line is the payload itself, as on MQTT: it names its `schema` and `device`, and reads well with
`jq 'select(.schema == "edge.detections/1")'`. Numbers that had to be let go appear as gap messages here, too.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from edge.deadline import Deadline
from edge.errors import ConfigError
from edge.protocols import TopicMessage
from edge.publish.discovery.announced import NoStreamState
from edge.publish.discovery.home_assistant import Announcement
from edge.publish.outbox.entry import entry_from_message
from edge.publish.outbox.outbox import Outbox

__all__ = ["JsonlPublisher"]

_RETRY_S = 1.0
_GATHER_S = 0.002  # whoever is woken by a message waits so long for the others of its batch, out of the caller's way
_SLICE_S = 0.1
# A reader that takes nothing for so long is not waited for at a stop.
_STUCK_S = 1.0

_log = logging.getLogger(__name__)


class JsonlPublisher:
    """A `Publisher` to a file that is appended to, or to standard output (`-`), with one thread of its own.

    A full disk is retried every second while the queue holds; a closed pipe ends the output. Both are logged once and
    counted, and neither is felt by the caller.

    Raises:
        ConfigError: when the file cannot be opened.
    """

    def __init__(
        self,
        target: str,
        *,
        device: str,
        max_bytes: int = 8 << 20,
        close_timeout_s: float = 5.0,
        retry_s: float = _RETRY_S,
    ) -> None:
        self._target = target
        self._descriptor = _open(target)
        self._is_file = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)
        self._blocked_since_s: float | None = None
        self._outbox = Outbox(device=device, max_bytes=max_bytes)
        self._close_timeout_s = close_timeout_s
        self._retry_s = retry_s
        self._has_news = threading.Event()
        self._closing = threading.Event()
        self._is_broken = False
        self._is_torn = False
        self._errors = 0
        self._thread = threading.Thread(target=self._run, name="jsonl-publisher", daemon=True)
        self._thread.start()

    @property
    def is_broken(self) -> bool:
        """Whether nothing can be written any more, ever: the reader of the pipe is gone."""
        return self._is_broken

    @property
    def alarm(self) -> str | None:
        """Always None: what cannot be written is logged and counted."""
        return None

    def publish(self, message: TopicMessage) -> None:
        """Accept a message; when the bounds are reached the oldest numbered ones go, and are declared."""
        if not self._closing.is_set() and not isinstance(message, NoStreamState | Announcement):
            self._outbox.put(entry_from_message(message))
            if not self._has_news.is_set():  # the thread looks into the outbox after it has cleared this
                self._has_news.set()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything accepted is written; return whether it is. A reader that is stuck is not waited for."""
        deadline = Deadline.after(timeout_s)
        while not self._outbox.wait_idle(min(_SLICE_S, deadline.left_s)):
            if deadline.is_over or self._is_stuck or self._outbox.is_over:
                return False
        return True

    @property
    def _is_stuck(self) -> bool:
        """Whether nothing could be written for a while: the reader does not read, or the disk is full."""
        since_s = self._blocked_since_s
        return since_s is not None and time.monotonic() - since_s > _STUCK_S

    def counts(self) -> Mapping[str, int]:
        """Return the outbox's balance, and `errors` of writing."""
        return {**self._outbox.counts(), "errors": self._errors}

    def by_output(self) -> Mapping[str, Mapping[str, int]]:
        """Return the counts under the name of this output."""
        return {"jsonl": self.counts()}

    def close(self) -> None:
        """Write what can be written in time, close the file. Twice is no error."""
        if self._closing.is_set():
            return
        deadline = Deadline.after(self._close_timeout_s)
        self.flush(0 if self._errors else deadline.left_s)
        self._closing.set()
        self._has_news.set()
        self._thread.join(max(_STUCK_S, deadline.left_s))

    def _run(self) -> None:
        while not self._closing.is_set():
            self._has_news.wait()
            self._closing.wait(_GATHER_S)
            self._has_news.clear()
            while not self._closing.is_set() and not self._is_broken and self._write_next():
                pass
            if self._is_broken:
                self._outbox.drop_all()
        left = self._outbox.end()
        if left:
            _log.warning("messages not written at the end path=%s count=%d", self._target, left)
        os.close(self._descriptor)

    def _write_next(self) -> bool:
        entry = self._outbox.take()
        if entry is None:
            return False
        try:
            self._write(entry.encode() + b"\n")
        except OSError as error:
            self._outbox.put_back(entry)
            self._note(error)
            if not self._is_broken:
                self._closing.wait(self._retry_s)
        else:
            self._outbox.acknowledge(entry)
        return True

    def _write(self, line: bytes) -> None:
        """Write a whole line; one that was torn by an error is ended first, so that readers lose only that one.

        Never blocks: a pipe that is said to be writable takes `PIPE_BUF` at once.
        """
        rest = memoryview(b"\n" + line if self._is_torn else line)
        while rest:
            self._wait_for_room()
            written = os.write(self._descriptor, rest if self._is_file else rest[: select.PIPE_BUF])
            self._blocked_since_s = None
            self._is_torn = written < len(rest)
            rest = rest[written:]

    def _wait_for_room(self) -> None:
        while not self._is_file and not self._poll.poll(_SLICE_S * 1000):
            if self._blocked_since_s is None:
                self._blocked_since_s = time.monotonic()
            if self._closing.is_set():
                raise TimeoutError(errno.ETIMEDOUT, "its reader does not read")

    def _note(self, error: OSError) -> None:
        self._errors += 1
        self._is_broken = error.errno in (errno.EPIPE, errno.EBADF)
        if self._errors == 1:
            _log.error("messages cannot be written path=%s error=%s", self._target, error.strerror)


def _open(target: str) -> int:
    if target == "-":
        return _open_standard_output()
    try:
        # Without O_NONBLOCK a pipe that nobody reads would be waited for without end, before the start.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(Path(target), flags, 0o644)
        os.set_blocking(descriptor, True)
        return descriptor
    except OSError as error:
        if error.errno == errno.ENXIO and Path(target).is_fifo():
            raise ConfigError(
                f"publish.jsonl: {target}: expected a pipe with a reader, nobody reads this one",
                hint="start its reader first, or name a file",
            ) from error
        raise ConfigError(
            f"publish.jsonl: {target}: {error.strerror}",
            hint="name a file that can be written, or - for standard output",
        ) from error


def _open_standard_output() -> int:
    try:
        if sys.stdout is None:  # Python's word for a descriptor that was closed at the start
            raise OSError(errno.EBADF, "it is closed")
        sys.stdout.flush()
        return os.dup(sys.stdout.fileno())
    except OSError as error:
        raise ConfigError(
            f"publish.jsonl: standard output cannot be written: {error.strerror or error}",
            hint="redirect it to a file or a pipe with a reader, or name a file",
        ) from error
