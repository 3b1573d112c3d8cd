"""Makes publishers, birth message and sequence numbers from the pipeline file."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path

import msgspec

from edge.config.credentials import read_credential
from edge.config.pipeline import Pipeline
from edge.config.schema import MqttConfig, SpoolConfig
from edge.device.units import unit_folder
from edge.protocols import Publisher
from edge.publish.convert import rfc3339_from_ns
from edge.publish.discovery import announcements, nothing_of, removed_streams
from edge.publish.fanout import FanoutPublisher
from edge.publish.frames import FramePublisher, Selection
from edge.publish.jsonl import JsonlPublisher
from edge.publish.message import ModelInfo, RetainedBytes
from edge.publish.messages import EngineInfo, InfoMessage
from edge.publish.mqtt.publisher import MqttPublisher
from edge.publish.numbering import raise_epoch
from edge.publish.outbox.bounds import Bounds
from edge.publish.outbox.recovery import SpoolPlace
from edge.reading import read_file
from edge.runtime.serve.engine import Running
from edge.runtime.serve.release import Deployed
from edge.types import ModelSpec
from edge.version import __version__

__all__ = ["announce", "birth_message", "device_name", "is_on_terminal", "make_frame_publisher", "make_publisher"]

_KEY_SHOWN = 8  # as of a calibration: enough to tell the engines of a fleet apart
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def device_name(configured: str | None) -> str:
    """Return the topic level of this machine: as configured, or its host name in the characters that are allowed."""
    if configured is not None:
        return configured
    host = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().split(".")[0].lower()).strip("-")
    return host[:32] or "device"


def make_publisher(pipeline: Pipeline, info: InfoMessage) -> FanoutPublisher:
    """It begins to connect at once. Raises `ConfigError` if a secret, a certificate or the JSON file is unusable."""
    config = pipeline.config
    publishers: list[Publisher] = []
    if config.mqtt is not None:
        name = config.mqtt.credential
        credential = None if name is None else read_credential(name)
        mqtt = MqttPublisher(
            config.mqtt,
            info=info,
            credential=credential,
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


def make_frame_publisher(pipeline: Pipeline, publisher: Publisher, info: InfoMessage) -> FramePublisher:
    """Number frames on the epoch of the birth message."""
    publish = pipeline.config.publish
    return FramePublisher(publisher, info.run_info, Selection(publish.mode, heartbeat_s=publish.heartbeat_s))


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
