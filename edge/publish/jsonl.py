"""JSON Lines: each message's payload as one line of a file or of standard output.

A line is the payload itself, as on MQTT: it names its `schema` and `device`, and reads well with
`jq 'select(.schema == "edge.detections/1")'`. Where the file takes too little,
the oldest lines are dropped and counted; their numbers are missing in it.
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
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path

from edge.deadline import Deadline
from edge.errors import ConfigError
from edge.protocols import TopicMessage
from edge.publish.frames import FrameMessage
from edge.publish.message import WireMessage
from edge.publish.outbox.message import Entry, entry_from_message

__all__ = ["JsonlPublisher"]

_RETRY_S = 1.0
_GATHER_S = 0.002  # a message wakes the writer, which waits so long for the others of its batch
_SLICE_S = 0.1
_CLOSE_S = 5.0
# A reader that takes nothing for so long is not waited for at a stop.
_STUCK_S = 1.0
_COUNTS = ("accepted", "delivered", "dropped", "errors", "numbered", "numbered_acknowledged", "numbered_lost")

_log = logging.getLogger(__name__)


class JsonlPublisher:
    """A `Publisher` to a file that is appended to, or to standard output (`-`), with one thread of its own.

    A full disk is retried every second; lines over `max_bytes` are dropped, the oldest first. A closed pipe ends the
    output (`is_broken`). Both are logged once and counted, and neither is felt by the caller. Raises `ConfigError` when
    the file cannot be opened.
    """

    alarm: str | None = None  # what cannot be written is logged and counted

    def __init__(self, target: str, *, max_bytes: int = 8 << 20, retry_s: float = _RETRY_S) -> None:
        self._target = target
        self._descriptor = _open(target)
        self._is_file = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)
        self._blocked_since_s: float | None = None
        self._changed = threading.Condition()
        self._lines: deque[Entry] = deque()  # of the first a part may be in the file already
        self._counts = Counter(dict.fromkeys(_COUNTS, 0))
        self._max_bytes, self._waiting_bytes = max_bytes, 0
        self._retry_s = retry_s
        self._closing = threading.Event()
        self.is_broken = self._is_torn = False
        self._thread = threading.Thread(target=self._run, name="jsonl-publisher", daemon=True)
        self._thread.start()

    def publish(self, message: TopicMessage) -> None:
        if self._closing.is_set() or not isinstance(message, WireMessage | FrameMessage):
            return
        line = entry_from_message(message)
        with self._changed:
            self._counts["accepted"] += 1
            self._counts["numbered"] += line.number is not None
            self._lines.append(line)
            self._waiting_bytes += line.cost_bytes
            while self._waiting_bytes > self._max_bytes and len(self._lines) > 2:
                self._settle(1, is_written=False)
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """A reader that is stuck is not waited for."""
        deadline = Deadline.after(timeout_s)
        with self._changed:
            while self._lines:
                if deadline.is_over or self._is_stuck or not self._thread.is_alive():
                    return False
                self._changed.wait(min(_SLICE_S, deadline.left_s))
        return True

    @property
    def _is_stuck(self) -> bool:
        """Whether nothing could be written for a while: the reader does not read, or the disk is full."""
        since_s = self._blocked_since_s
        return since_s is not None and time.monotonic() - since_s > _STUCK_S

    def counts(self) -> Mapping[str, int]:
        with self._changed:
            return {**self._counts, "waiting": len(self._lines), "waiting_bytes": self._waiting_bytes}

    def by_output(self) -> Mapping[str, Mapping[str, int]]:
        return {"jsonl": self.counts()}

    def close(self) -> None:
        """Write what can be written in time. Twice is no error."""
        if self._closing.is_set():
            return
        deadline = Deadline.after(_CLOSE_S)
        self.flush(0 if self._counts["errors"] else deadline.left_s)
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(max(_STUCK_S, deadline.left_s))

    def _run(self) -> None:
        while not self._closing.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._closing.is_set())
            self._closing.wait(_GATHER_S)
            while self._lines and not self._closing.is_set():
                self._write_next()
        if self._lines:
            _log.warning("messages not written at shutdown path=%s count=%d", self._target, len(self._lines))
        os.close(self._descriptor)

    def _write_next(self) -> None:
        """Write the oldest line, or drop it where nothing can be written any more."""
        try:
            if not self.is_broken:
                self._write(self._lines[0].encode() + b"\n")
        except OSError as error:
            self._counts["errors"] += 1
            self.is_broken = error.errno in (errno.EPIPE, errno.EBADF)
            if error.errno == errno.EPIPE:  # as of `| head`
                _log.warning("reader of messages has gone path=%s", self._target)
            elif self._counts["errors"] == 1:
                _log.error("messages cannot be written path=%s error=%s", self._target, error.strerror)
            if not self.is_broken:
                self._closing.wait(self._retry_s)
            return
        with self._changed:
            self._settle(0, is_written=not self.is_broken)
            self._changed.notify_all()

    def _settle(self, index: int, *, is_written: bool) -> None:
        line = self._lines[index]
        del self._lines[index]
        self._waiting_bytes -= line.cost_bytes
        self._counts["delivered" if is_written else "dropped"] += 1
        self._counts["numbered_acknowledged" if is_written else "numbered_lost"] += line.number is not None
        if not is_written and self._counts["dropped"] == 1 and not self.is_broken:
            _log.warning("lines are dropped path=%s: it takes less than is published", self._target)

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


def _open(target: str) -> int:
    if target == "-":
        return _open_standard_output()
    try:
        # Without O_NONBLOCK a pipe without a reader would be waited for without end, before the start.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(Path(target), flags, 0o644)
        os.set_blocking(descriptor, True)
        return descriptor
    except OSError as error:
        if error.errno == errno.ENXIO and Path(target).is_fifo():
            raise ConfigError(
                f"publish.jsonl: {target}: expected a pipe with a reader, this one has none",
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
