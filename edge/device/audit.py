"""The audit log of a device: one JSON object per line (who, from where, what, result), of bounded length."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from edge.device.durable import Durable, typed
from edge.device.layout import Layout
from edge.device.lock import state_lock
from edge.reading import json_object

__all__ = ["Audit", "Kind"]

_MAX_BYTES = 1024 * 1024
_MAX_TEXT = 500


class Kind(str, enum.Enum):
    """Kind of a line; the value names its file.

    A log for each, so that requests which are refused or change nothing, however often, do not push out what was done.
    """

    CHANGE = "audit.jsonl"  # of what serves, of the state or of the counters
    REQUEST = "audit-requests.jsonl"
    REFUSED = "audit-refused.jsonl"


class Audit:
    """The audit log, that of requests that changed nothing, that of refusals, and one predecessor of each (`.1`).

    From `max_bytes` on a new file is begun, by one process alone: `hold` takes the state lock.
    """

    def __init__(
        self,
        layout: Layout,
        durable: Durable,
        *,
        max_bytes: int = _MAX_BYTES,
        hold: Callable[[Layout], AbstractContextManager[None]] = state_lock,
    ) -> None:
        self._layout = layout
        self._folder = layout.audit.parent
        self._durable = durable
        self._max_bytes = max_bytes
        self._hold = hold

    @typed
    def write(
        self,
        *,
        at: str,
        who: str,
        origin: str,
        what: str,
        result: str,
        release: str | None = None,
        kind: Kind = Kind.CHANGE,
        times: int = 1,
    ) -> None:
        """Add a line; it is on the disk when this returns. Texts are cut at 500 characters.

        `times`: so often, the last time `at`. Call without the state lock held.
        """
        path = self._folder / kind.value
        if self._is_full(path):
            with self._hold(self._layout):
                if self._is_full(path):
                    self._durable.files.rename(path, _before(path))
                    self._durable.files.sync_dir(path.parent)
        values: dict[str, object] = {"at": at, "who": who, "from": origin, "what": what}
        values |= {"release": release, "result": result} | ({"times": times} if times > 1 else {})
        short = {name: value[:_MAX_TEXT] if isinstance(value, str) else value for name, value in values.items()}
        self._durable.append_line(path, json.dumps(short).encode())

    @typed
    def lines(self, most: int) -> list[dict[str, object]]:
        """Return the last lines of all logs, oldest first; a line that a power cut tore is left out."""
        files = self._durable.files
        logs = [self._folder / kind.value for kind in Kind]
        paths = [path for log in logs for path in (_before(log), log)]
        content = b"".join(files.read(path) for path in paths if files.length(path) is not None)
        found = [value for value in map(_decoded, content.splitlines()) if value is not None]
        return sorted(found, key=lambda line: str(line.get("at")))[-most:]

    def _is_full(self, path: Path) -> bool:
        return (self._durable.files.length(path) or 0) >= self._max_bytes


def _before(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _decoded(line: bytes) -> dict[str, object] | None:
    try:
        return json_object(line)
    except ValueError:
        return None
