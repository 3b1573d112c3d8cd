"""Journal of a rollout on the workstation's disk, so that `push --resume` goes on where it ended."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from edge.config.targets import Target
from edge.delivery.outcome import Outcome, now
from edge.errors import DeployError
from edge.writing import sync_folder

__all__ = ["Journal", "journal_path", "state_folder"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def journal_path(release: str, channel: str) -> Path:
    """Return the path below $XDG_STATE_HOME, else ~/.local/state; ValueError if the names cannot be part of it."""
    for name in (release, channel):
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name of a release or a channel")
    return state_folder() / "rollouts" / f"{release}-{channel}.jsonl"


def state_folder() -> Path:
    """Return where this workstation remembers what it did: below $XDG_STATE_HOME, else ~/.local/state."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    state = given if given.is_absolute() else Path.home() / ".local" / "state"
    return state / "edge-deploy"


class Journal(AbstractContextManager["Journal"]):
    """One JSON object per line; each is on disk before the call returns. Held by one rollout at a time.

    A line that is no JSON (the last one, if the power went) is passed over: its target counts as not done.
    """

    def __init__(self, path: Path) -> None:
        """Open or create it, and hold it; raise DeployError `lock.rollout` (another holds it) or `request.journal`."""
        self._path = path
        self._done: set[tuple[str, str]] = set()
        self._last_begin: Mapping[str, Any] | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            self._read()
            self._hold()
            self._read()  # again: it is ours only now
            sync_folder(path.parent)
        except BaseException as error:
            os.close(self._fd)
            if isinstance(error, OSError):
                raise self._unusable(error) from None
            raise

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._fd)

    @property
    def has_begun(self) -> bool:
        return self._last_begin is not None

    def is_done(self, target: Target) -> bool:
        """Return whether nothing is left to do for a target; one whose name points to another host now is not done."""
        return (target.name, target.host) in self._done

    def begin(self, targets: Sequence[Target], *, is_resumed: bool) -> None:
        """Note a rollout's begin; unless resumed, earlier ends do not count. Raises `DeployError` `request.journal`."""
        entry = {
            "event": "begin",
            "resumed": is_resumed,
            "targets": [target.name for target in targets],
            "by": f"process {os.getpid()} on {socket.gethostname()}",
        }
        self._append(entry)

    def note(self, target: Target, outcome: Outcome) -> None:
        """Raises DeployError `request.journal`."""
        entry = {
            "event": "result",
            "target": target.name,
            "host": target.host,
            "result": outcome.result,
            "code": outcome.code,
            "exit_code": outcome.exit_code,
            "done": outcome.is_done,
        }
        self._append(entry)

    def _hold(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            by = self._last_begin or {}
            raise DeployError(
                "lock.rollout",
                f"this release is being rolled out since {by.get('at', 'now')} by {by.get('by', 'another process')}",
                hint="wait until it has ended",
            ) from None

    def _read(self) -> None:
        self._done.clear()
        for line in self._path.read_bytes().splitlines():
            try:
                entry = json.loads(line)
                self._enter(entry)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue

    def _enter(self, entry: Mapping[str, Any]) -> None:
        if entry["event"] == "begin":
            self._last_begin = dict(entry)
            if not entry["resumed"]:
                self._done.clear()
        elif entry["event"] == "result":
            key = (str(entry["target"]), str(entry["host"]))
            (self._done.add if entry["done"] is True else self._done.discard)(key)

    def _append(self, entry: Mapping[str, object]) -> None:
        stamped = {"at": now().isoformat(timespec="milliseconds"), **entry}
        # It begins with a line break too, so that a torn line before it cannot spoil it; empty lines are no JSON.
        line = b"\n" + json.dumps(stamped, separators=(",", ":")).encode() + b"\n"
        try:
            if os.write(self._fd, line) != len(line):
                raise OSError(0, "only a part of it was written")
            os.fsync(self._fd)
        except OSError as error:
            raise self._unusable(error) from None
        self._enter(stamped)

    def _unusable(self, error: OSError) -> DeployError:
        return DeployError(
            "request.journal",
            f"{self._path}: the journal of the rollout cannot be written: {error.strerror}",
            hint="make room or give another folder in XDG_STATE_HOME",
        )
