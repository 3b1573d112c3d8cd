"""The locks of a device: for a whole push, for the moment in which the switch moves, and for a build."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from edge.deadline import Deadline
from edge.device.durable import disk_error
from edge.device.layout import Layout
from edge.errors import ConfigError, DeployError
from edge.reading import json_object

__all__ = ["PushLock", "engines_lock", "service_lock", "state_lock"]

_STATE_DEADLINE_S = 10.0
_PROBE_S = 0.1  # `holder` has the lock for a moment, which is no push
_RETRY_S = 0.02
_BUILD_RETRY_S = 0.2


class PushLock:
    """The lock of a push; the kernel gives it back when the process that holds it ends, however it ends.

    `is_of_fetch`: that of a pull while it fetches, which is in the way of another pull only.
    """

    def __init__(self, layout: Layout, *, is_of_fetch: bool = False) -> None:
        self._path = layout.fetch_lock if is_of_fetch else layout.push_lock

    @contextlib.contextmanager
    def acquire(self, who: str, why: str) -> Iterator[None]:
        """Hold the lock within the block; DeployError `lock.held`, within a moment, with the holder in its evidence."""
        with _opened(self._path) as descriptor:
            if not _taken_soon(descriptor, _PROBE_S):
                raise _held(self._path, _holder(descriptor))
            since = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            _write(descriptor, {"who": who[:200], "why": why[:200], "since": since, "pid": os.getpid()})
            try:
                yield
            finally:
                os.ftruncate(descriptor, 0)

    def holder(self) -> dict[str, object] | None:
        """Return the holder of the lock (who, why, since, pid); None if it is free."""
        with _opened(self._path) as descriptor:
            return None if _taken(descriptor) else _holder(descriptor)


@contextlib.contextmanager
def state_lock(layout: Layout, *, deadline_s: float = _STATE_DEADLINE_S) -> Iterator[None]:
    """Hold the right to change state, `current`, `bad.json`, counters; DeployError `lock.state` after `deadline_s`."""
    with _opened(layout.state_lock) as descriptor:
        if not _taken_soon(descriptor, deadline_s):
            raise DeployError(
                "lock.state",
                f"{layout.state_lock}: held by another process for more than {deadline_s:g} s",
                hint="look for a process that hangs: fuser -v on that file",
            )
        yield


@contextlib.contextmanager
def engines_lock(layout: Layout, *, within_s: float, stop: threading.Event) -> Iterator[bool]:
    """Wait for the right to build engines, and hold it within the block; give whether it came in time, before `stop`.

    Two builds of one engine would write into one folder, and any two would time each other. The lock is that of the
    builder's folder, which is there: no user needs the right to make one, and a runtime cannot hold it.
    """
    try:
        descriptor = os.open(layout.workshop, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise disk_error(error) from error
    try:
        deadline = Deadline.after(within_s)
        while not (is_taken := _taken(descriptor)) and not deadline.is_over and not stop.wait(_BUILD_RETRY_S):
            pass
        yield is_taken
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def service_lock(folder: Path) -> Iterator[None]:
    """Hold the files of a service in `folder` for this process; ConfigError where another one does.

    A folder that cannot be written is no error: nothing of a service is kept there. The lock is of the process: no
    child that outlives it has it.
    """
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(_opened(folder / ".edge-runtime.lock"))
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{folder}: another edge-runtime (pid {_holder(descriptor).get('pid', 'unknown')}) uses this folder",
                hint="stop that one, or give this one other folders in STATE_DIRECTORY and RUNTIME_DIRECTORY",
            ) from None
        except (OSError, DeployError):
            pass
        else:
            _write(descriptor, {"pid": os.getpid()})
        yield


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:  # to its owner alone: a user who can open a file can hold its lock and keep every push away
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise disk_error(error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _taken_soon(descriptor: int, within_s: float) -> bool:
    deadline = Deadline.after(within_s)
    while not _taken(descriptor):
        if deadline.is_over:
            return False
        time.sleep(_RETRY_S)
    return True


def _write(descriptor: int, values: dict[str, object]) -> None:
    os.ftruncate(descriptor, 0)
    with contextlib.suppress(OSError):  # full: what is held is the lock, the text is for people
        os.pwrite(descriptor, json.dumps(values).encode() + b"\n", 0)


def _holder(descriptor: int) -> dict[str, object]:
    try:
        return json_object(os.pread(descriptor, 4096, 0))
    except ValueError:  # it has the lock and has not written its name yet
        return {}


def _held(path: Path, holder: dict[str, object]) -> DeployError:
    who, why, since = (holder.get(key, "unknown") for key in ("who", "why", "since"))
    return DeployError(
        "lock.held",
        f"{path}: held by {who} since {since} ({why})",
        hint="wait until that push has ended; it gives the lock back when its connection ends",
        evidence=holder,
    )
