"""Makes publishers, birth message and sequence numbers from the pipeline file.

Tells subscribers from where this device fetches its releases, and what its last look at the registry came to; and how
the last switch on this device ended: when a release begins to serve, and at each verdict.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path

import msgspec

from edge.codec import encode
from edge.config.pipeline import Pipeline
from edge.config.schema import MqttConfig, SpoolConfig
from edge.device.durable import Files
from edge.device.facts import name_of_host
from edge.device.layout import Layout
from edge.device.state import Phase, read_state
from edge.device.units import unit_folder
from edge.errors import DeployError
from edge.protocols import Publisher
from edge.publish.discovery import announcements, nothing_of, removed_streams
from edge.publish.fanout import FanoutPublisher
from edge.publish.frames import rfc3339_from_ns
from edge.publish.jsonl import JsonlPublisher
from edge.publish.message import ModelInfo, RetainedBytes
from edge.publish.messages import DeployMessage, EngineInfo, InfoMessage, PullMessage
from edge.publish.mqtt.publisher import MqttPublisher
from edge.publish.numbering import raise_epoch
from edge.publish.outbox.bounds import Bounds
from edge.publish.outbox.recovery import SpoolPlace
from edge.reading import read_file
from edge.registry.reference import PullSettings, read_pull_settings
from edge.runtime.pull.record import PullRecord, read_pull_record
from edge.runtime.serve.engine import Deployed, Running
from edge.types import ModelSpec
from edge.version import __version__

__all__ = [
    "LastLook",
    "LastSwitchPublisher",
    "announce",
    "birth_message",
    "is_on_terminal",
    "make_publisher",
]

_log = logging.getLogger(__name__)
_KEY_SHOWN = 8  # as of a calibration: enough to tell the engines of a fleet apart
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def device_name(configured: str | None) -> str:
    """Return the topic level of this machine."""
    return name_of_host(socket.gethostname()) if configured is None else configured


def make_publisher(pipeline: Pipeline, info: InfoMessage) -> FanoutPublisher:
    """It begins to connect at once. Raises `ConfigError` if a secret, a certificate or the JSON file is unusable."""
    config = pipeline.config
    publishers: list[Publisher] = []
    if config.mqtt is not None:
        mqtt = MqttPublisher(
            config.mqtt,
            info=info,
            credential=pipeline.login_of_broker,
            base_dir=pipeline.path.parent,
            max_bytes=config.mqtt.memory_mib << 20,
            run_path=_run_path(),
            spool=_spool(config.mqtt),
        )
        for message in _announcements(pipeline, info):
            mqtt.publish(message)
        publishers.append(mqtt)
    target = config.publish.jsonl
    if target is not None and not is_on_terminal(target):
        path = target if target == "-" else str(pipeline.resolve(target))
        publishers.append(JsonlPublisher(path))
    publisher = FanoutPublisher(publishers)
    for stream in removed_streams(_state_dir(pipeline), info.streams):
        for nothing in nothing_of(stream):
            publisher.publish(nothing)
    for stream in () if config.publish.counts else info.streams:
        publisher.publish(RetainedBytes(f"streams/{stream}/counts"))
    return publisher


def is_on_terminal(target: str | None) -> bool:
    """Return whether JSON lines would go to a terminal, which shows none: a person there watches the run."""
    return target == "-" and os.isatty(1)


def announce(pipeline: Pipeline, info: InfoMessage, publisher: Publisher) -> InfoMessage:
    """Publish the birth message with the streams of `pipeline`, remember these, and return it."""
    now = msgspec.structs.replace(info, streams=[stream.id for stream in pipeline.config.streams])
    removed_streams(_state_dir(pipeline), now.streams)
    publisher.publish(now)
    for message in _announcements(pipeline, now):
        publisher.publish(message)
    return now


def _announcements(pipeline: Pipeline, info: InfoMessage) -> list[RetainedBytes]:
    config = pipeline.config
    if config.mqtt is None:
        return []
    return announcements(config.mqtt, info, config.streams, publish=config.publish, state_dir=_state_dir(pipeline))


def birth_message(
    pipeline: Pipeline, spec: ModelSpec, running: Running, deployed: Deployed | None = None
) -> InfoMessage:
    """It begins a new epoch of the device."""
    config = pipeline.config
    device = config.device if config.device is not None or deployed is None else deployed.device
    return InfoMessage(
        device=device_name(device),
        software=f"edge-deploy {__version__}",
        epoch=raise_epoch(_state_dir(pipeline)),
        started_at=rfc3339_from_ns(time.time_ns()),
        model=ModelInfo(
            name=spec.name if deployed is None else deployed.model_name,
            release=None if deployed is None else deployed.release,
            engine=None if deployed is None else deployed.record.inputs.key[:_KEY_SHOWN],
            calibration=running.calibration,
            precision=running.precision.value,
        ),
        engine=EngineInfo(
            kind=running.kind,
            name=running.engine.name,
            precision=running.precision.value,
            asked=running.asked.value,
            why=running.why or None,
        ),
        labels=list(spec.labels),
        streams=[stream.id for stream in config.streams],
        boot_id=read_file(_BOOT_ID).decode("ascii").strip() if _BOOT_ID.exists() else None,
    )


def _run_path() -> Path | None:
    """Return where messages outlive the process: only a service has such a place."""
    folder = unit_folder("RUNTIME_DIRECTORY")
    return None if folder is None else folder / "outbox.db"


def _spool(config: MqttConfig) -> SpoolPlace | None:
    """Return where messages outlive a power cut, and how many: only a service has such a place."""
    folder = unit_folder("STATE_DIRECTORY")
    if folder is None or config.spool is False:
        return None
    asked = SpoolConfig() if config.spool is True else config.spool
    bounds = Bounds(max_bytes=asked.max_mib << 20, max_age_s=asked.max_age_h * 3600, free_bytes=asked.free_mib << 20)
    return SpoolPlace(folder / "spool.db", bounds)


def _state_dir(pipeline: Pipeline) -> Path:
    folder = unit_folder("STATE_DIRECTORY")
    if folder is not None:
        return folder
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "edge-deploy" / device_name(pipeline.config.device)


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
            record = read_pull_record(self._layout.pull_record)
            if record is None and has_record:
                _log.warning("record of the last pull cannot be read path=%s", self._layout.pull_record)
            return self._message(settings, record)
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
