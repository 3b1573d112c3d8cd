"""Tells subscribers from where this device fetches its releases, and what its last look at the registry came to.

Tells subscribers how the last switch on this device ended: when a release begins to serve, and at each verdict.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from edge.codec import encode
from edge.device.files import Files
from edge.device.layout import Layout
from edge.device.state import Phase, read_state
from edge.errors import DeployError
from edge.protocols import Publisher
from edge.publish.device_messages import DeployMessage, PullMessage
from edge.registry.pull_settings import PullSettings, read_pull_settings
from edge.runtime.pull.record import PullRecord, read_pull_record

__all__ = ["LastLook", "LastSwitchPublisher"]

_log = logging.getLogger(__name__)


class LastLook:
    """Looks at the settings and the record of the last pull at `layout`, and publishes what is news; never raises.
    `said` is what was published last.
    """

    def __init__(self, publisher: Publisher, layout: Layout, *, device: str) -> None:
        self._publisher = publisher
        self._layout = layout
        self._device = device
        self._seen: tuple[object, object] | None = None
        self.said: PullMessage | None = None

    def tick(self) -> None:
        """Publish what the last look came to, if that was not published yet; it costs two stats if nothing is new."""
        seen = (_written(self._layout.pull_toml), _written(self._layout.pull_record))
        if seen == self._seen:
            return
        self._seen = seen
        found = self._found(has_settings=seen[0] is not None, has_record=seen[1] is not None)
        if found is not None and self.said is not None and _is_same(found, self.said):
            found = msgspec.structs.replace(found, at=self.said.at)
        if found is not None and found != self.said:
            self.said = found
            self._publisher.publish(found)

    def _found(self, *, has_settings: bool, has_record: bool) -> PullMessage | None:
        if not has_settings:
            # The broker may still hold what was said when there were settings.
            return PullMessage(device=self._device) if has_record or self.said is not None else None
        try:
            settings = read_pull_settings(self._layout.pull_toml)
            return self._message(settings, read_pull_record(self._layout.pull_record) if has_record else None)
        except (DeployError, msgspec.ValidationError) as error:
            _log.warning("pull status not published reason=%s", error)
            return None

    def _message(self, settings: PullSettings, record: PullRecord | None) -> PullMessage:
        told: dict[str, object] = {}
        if record is not None and record.reference == str(settings.reference):
            told = {"release": record.release, "result": record.result, "code": record.code, "at": record.at}
            told |= {"reason": record.problem, "looked_at": record.looked_at}
        where = {"repository": settings.repository, "channel": settings.channel, "ring": settings.ring}
        return msgspec.convert({"device": self._device, **where, **told}, PullMessage)


def _written(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is written; None: there is none, or none that can be seen."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _is_same(one: PullMessage, other: PullMessage) -> bool:
    """Return whether two say the same, whenever it was."""
    return msgspec.structs.replace(one, at=other.at, looked_at=other.looked_at) == other


class LastSwitchPublisher:
    """Looks at the state of the device at `layout` and publishes what is news; never raises.
    `said` is what was published last.
    """

    def __init__(self, publisher: Publisher, layout: Layout, *, device: str) -> None:
        self._publisher = publisher
        self._layout = layout
        self._device = device
        self.said: DeployMessage | None = None
        self._is_broken = False
        self._phase: Phase | None = None

    @property
    def is_on_trial(self) -> bool:
        return self._phase is Phase.TRIAL

    def tick(self) -> None:
        """Publish how the last switch ended, if that was not published yet."""
        try:
            state = read_state(self._layout, Files())
            last, self._phase = state.last, state.phase
            found = None if last is None else msgspec.convert({**encode(last), "device": self._device}, DeployMessage)
        except (DeployError, msgspec.ValidationError) as error:
            if not self._is_broken:  # once is enough for the journal; the next push or recovery mends it
                _log.warning("state of the device cannot be read reason=%s", error)
            self._is_broken = True
            return
        self._is_broken = False
        if found is not None and found != self.said:
            self.said = found
            self._publisher.publish(found)
