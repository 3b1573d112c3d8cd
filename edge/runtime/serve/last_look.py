"""Tells subscribers from where this device fetches its releases, and what its last look at the registry came to."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from edge.device.layout import Layout
from edge.errors import DeployError
from edge.protocols import Publisher
from edge.publish.device_messages import PullMessage
from edge.registry.pull_settings import PullSettings, read_pull_settings
from edge.runtime.pull.record import PullRecord, read_pull_record

__all__ = ["LastLook"]

_log = logging.getLogger(__name__)


class LastLook:
    """Looks at the settings and the record of the last pull at `layout`, and publishes what is news; never raises."""

    def __init__(self, publisher: Publisher, layout: Layout, *, device: str) -> None:
        self._publisher = publisher
        self._layout = layout
        self._device = device
        self._seen: tuple[object, object] | None = None
        self._said: PullMessage | None = None

    def tick(self) -> None:
        """Publish what the last look came to, if that was not published yet; it costs two stats if nothing is new."""
        seen = (_written(self._layout.pull_toml), _written(self._layout.pull_record))
        if seen == self._seen:
            return
        self._seen = seen
        found = self._found(has_settings=seen[0] is not None, has_record=seen[1] is not None)
        if found is not None and not _is_same(found, self._said):
            self._said = found
            self._publisher.publish(found)

    def _found(self, *, has_settings: bool, has_record: bool) -> PullMessage | None:
        if not has_settings:
            # The broker may still hold what was said when there were settings.
            return PullMessage(device=self._device) if has_record or self._said is not None else None
        try:
            settings = read_pull_settings(self._layout.pull_toml)
            return self._message(settings, read_pull_record(self._layout.pull_record) if has_record else None)
        except (DeployError, msgspec.ValidationError) as error:
            _log.warning("what was fetched cannot be told reason=%s", error)
            return None

    def _message(self, settings: PullSettings, record: PullRecord | None) -> PullMessage:
        told: dict[str, object] = {}
        if record is not None and record.reference == str(settings.reference):
            told = {"release": record.release, "result": record.result, "code": record.code, "at": record.at}
            told["reason"] = record.problem
        where = {"repository": settings.repository, "channel": settings.channel, "ring": settings.ring}
        return msgspec.convert({"device": self._device, **where, **told}, PullMessage)


def _written(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is written; None: there is none, or none that can be seen."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _is_same(one: PullMessage, other: PullMessage | None) -> bool:
    """Return whether two say the same, whenever it was."""
    return other is not None and msgspec.structs.replace(one, at=other.at) == other
