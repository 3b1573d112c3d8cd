"""Who did what on a device, from where, with what result: one JSON object per line, kept to a bounded length."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from edge.device.disk import typed
from edge.device.durable import Durable
from edge.device.layout import Layout
from edge.device.lock import state_lock
from edge.reading import json_object

__all__ = ["Audit"]

_MAX_BYTES = 1024 * 1024
_MAX_TEXT = 500


class Audit:
    """The audit log, that of what was refused (`audit-refused.jsonl`), and one predecessor of each (`.1`).

    Args:
        layout, durable: of the device.
        max_bytes: from this length on a new file is begun.
        hold: takes the state lock, so that of two processes that write only one begins a new file.
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
        self._path = layout.audit
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
        is_refused: bool = False,
    ) -> None:
        """Add a line; it is on the disk when this returns. Texts are cut at 500 characters.

        What was refused has a log of its own: whoever may ask can be refused as often as he likes, and shall not push
        out what was done. Call without the state lock held.
        """
        path = self._refused if is_refused else self._path
        if self._is_full(path):
            with self._hold(self._layout):
                if self._is_full(path):
                    self._durable.files.rename(path, _before(path))
                    self._durable.files.sync_dir(path.parent)
        values = {"at": at, "who": who, "from": origin, "what": what, "release": release, "result": result}
        short = {name: value[:_MAX_TEXT] if isinstance(value, str) else value for name, value in values.items()}
        self._durable.append_line(path, json.dumps(short).encode())

    @typed
    def lines(self, most: int) -> list[dict[str, object]]:
        """Return the last lines of both logs, oldest first; a line that a power cut tore is left out."""
        files = self._durable.files
        paths = (_before(self._path), self._path, _before(self._refused), self._refused)
        content = b"".join(files.read(path) for path in paths if files.length(path) is not None)
        found = [value for value in map(_decoded, content.splitlines()) if value is not None]
        return sorted(found, key=lambda line: str(line.get("at")))[-most:]

    def _is_full(self, path: Path) -> bool:
        return (self._durable.files.length(path) or 0) >= self._max_bytes

    @property
    def _refused(self) -> Path:
        return self._path.with_name("audit-refused.jsonl")


def _before(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _decoded(line: bytes) -> dict[str, object] | None:
    try:
        return json_object(line)
    except ValueError:
        return None
