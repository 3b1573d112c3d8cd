"""Retained announcements: streams, and entities of Home Assistant; those of an older pipeline are taken away again.

Home Assistant is told by MQTT discovery of cameras, counts, zones and lines as devices and entities: one retained
configuration per entity, on `<prefix>/<component>/<node>/<entity>/config`, which every Home Assistant since 2024 reads.
The entities read the topics that all subscribers read. An entity goes when its configuration becomes empty.

Names are joined by "_", which no id of ours holds, so that no two are the same.

Source: Home Assistant's documentation of the MQTT integration.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edge.config.schema import LineConfig, MqttConfig, PublishConfig, StreamConfig, ZoneConfig
from edge.publish.message import RetainedBytes
from edge.publish.messages import InfoMessage
from edge.publish.mqtt.endpoint import topic_root
from edge.reading import json_object, read_file
from edge.writing import write_whole

__all__ = ["ANNOUNCED_FILE", "KEPT_FILE", "announcements", "nothing_of", "removed_streams"]

# What went is taken away again at each start, in case the broker was not there; so many are remembered.
ANNOUNCED_FILE, _STREAMS_FORMAT, _MOST_STREAMS = "announced.json", "edge.announced/1", 256
KEPT_FILE, _FORMAT, _MOST_GONE = "home-assistant.json", "edge.home-assistant/1", 1000

_MAX_BYTES = 1 << 20
_PICTURE = "picture"
_KINDS = ("enter", "appear", "leave", "vanish", "dwell", "cross")

_IS_UP = "value_json.state in ['up', 'degraded']"
_IS_RUNNING = "value_json.state in ['online', 'degraded']"

_log = logging.getLogger(__name__)

Entity = dict[str, Any]


def nothing_of(stream: str) -> list[RetainedBytes]:
    """Return what makes the broker forget all that it keeps of a stream."""
    return [RetainedBytes(f"streams/{stream}/{topic}") for topic in ("state", "occupancy", "counts", _PICTURE)]


def removed_streams(state_dir: Path, streams: Sequence[str]) -> tuple[str, ...]:
    """Return the streams of earlier starts that are not among `streams`, and remember these as well.

    Where nothing can be read or kept, there are none: that is logged and no error.
    """
    path = state_dir / ANNOUNCED_FILE
    try:
        before = _names(path, _STREAMS_FORMAT, "streams")
    except (OSError, ValueError) as error:
        _log.warning("streams file cannot be read path=%s error=%s: begun anew", path, error)
        before = []
    removed = tuple(stream for stream in before if stream not in streams)
    try:
        newest = list(dict.fromkeys([*removed, *streams]))[-_MOST_STREAMS:]
        write_whole(path, json.dumps({"format": _STREAMS_FORMAT, "streams": newest}).encode())
    except OSError as error:
        _log.warning("streams file cannot be written path=%s error=%s", path, error.strerror)
    return removed


def _names(path: Path, form: str, key: str) -> list[str]:
    """Return what a file of ours keeps, if it is there; raises OSError or ValueError where it is damaged."""
    try:
        kept = json_object(read_file(path, most_bytes=_MAX_BYTES))
    except FileNotFoundError:
        return []
    names = kept.get(key)
    if kept.get("format") != form or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"expected format {form} with {key}")
    return names


def announcements(
    config: MqttConfig, info: InfoMessage, streams: Sequence[StreamConfig], *, publish: PublishConfig, state_dir: Path
) -> list[RetainedBytes]:
    """Return what is to be published at a start, and keep in `state_dir` what that was.

    With `home_assistant` off, these are the removals of what an earlier start announced. `publish` says whether counts
    and pictures of streams are published, which entities show.
    """
    now = _Device(config, info, publish).entities(streams) if config.home_assistant else {}
    path = state_dir / KEPT_FILE
    try:
        before = _names(path, _FORMAT, "topics")
    except (OSError, ValueError) as error:
        _log.warning("discovery file cannot be read path=%s error=%s: old entities may stay in the UI", path, error)
        before = []
    gone = [topic for topic in before if topic not in now][-_MOST_GONE:]
    if now or before:
        _keep(path, [*gone, *now])
    payloads = dict.fromkeys(gone, b"") | {topic: json.dumps(entity).encode() for topic, entity in now.items()}
    return [RetainedBytes(topic, payload, is_absolute=True) for topic, payload in payloads.items()]


def _keep(path: Path, topics: Sequence[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"format": _FORMAT, "topics": topics}).encode())
    except OSError as error:
        problem = "entities that go later may stay in Home Assistant"
        _log.warning("discovery file cannot be written path=%s error=%s: %s", path, error.strerror, problem)


class _Device:
    """The machine, with one device in Home Assistant for itself and one for each stream."""

    def __init__(self, config: MqttConfig, info: InfoMessage, publish: PublishConfig) -> None:
        prefix = config.home_assistant
        self._prefix = prefix if isinstance(prefix, str) else "homeassistant"
        self._root = f"{topic_root(config)}/{info.device}"
        self._node = f"edge_{config.site}_{info.device}"
        self._info = info
        self._publish = publish
        self._made = {"manufacturer": "edge-deploy", "model": info.model.name, "sw_version": info.software}

    def entities(self, streams: Sequence[StreamConfig]) -> Mapping[str, Entity]:
        """Return entities by topic."""
        machine = {"identifiers": [self._node], "name": self._info.device, **self._made}
        running = {
            "name": "Running",
            "device_class": "connectivity",
            "state_topic": f"{self._root}/state",
            "value_template": _on_if(_IS_RUNNING),
            "device": machine,
        }
        found = dict([self._entity("binary_sensor", "running", running)])
        for stream in streams:
            for component, name, entity in self._of_stream(stream):
                topic, whole = self._entity(component, f"{stream.id}_{name}", entity)
                found[topic] = whole | {"device": self._camera(stream)}
        return found

    def _entity(self, component: str, name: str, entity: Entity) -> tuple[str, Entity]:
        about = {
            "unique_id": f"{self._node}_{name}",
            "object_id": f"{self._info.device}_{name}",
            "origin": {"name": "edge-deploy", "sw_version": self._info.software},
        }
        return f"{self._prefix}/{component}/{self._node}/{name}/config", entity | about

    def _camera(self, stream: StreamConfig) -> Entity:
        identity = {"identifiers": [f"{self._node}_{stream.id}"], "name": f"{self._info.device} {stream.id}"}
        return {**identity, **self._made, "via_device": self._node}

    def _of_stream(self, stream: StreamConfig) -> Iterator[tuple[str, str, Entity]]:
        """Yield component, name and configuration of each entity of a stream."""
        state = f"{self._root}/streams/{stream.id}/state"
        running = {"topic": f"{self._root}/state", "value_template": _available_if(_IS_RUNNING)}
        camera = {
            "name": "Camera",
            "device_class": "connectivity",
            "state_topic": state,
            "value_template": _on_if(_IS_UP),
            "json_attributes_topic": state,
            "availability": [running],
        }
        yield "binary_sensor", "camera", camera
        is_up = {"topic": state, "value_template": _available_if(_IS_UP)}
        common = {"availability": [running, is_up], "availability_mode": "all"}
        if self._publish.pictures_s is not None:
            picture = {"name": "Picture", "topic": f"{self._root}/streams/{stream.id}/{_PICTURE}"}
            yield "camera", _PICTURE, picture | common
        for component, name, entity in self._of_objects(stream):
            yield component, name, entity | common

    def _of_objects(self, stream: StreamConfig) -> Iterator[tuple[str, str, Entity]]:
        below, tracking = f"{self._root}/streams/{stream.id}", stream.tracking
        if tracking is None and not self._publish.counts:
            return
        told = {"state_topic": f"{below}/{'counts' if tracking is None else 'occupancy'}"}
        total = {"value_template": "{{ value_json.total }}"} if tracking is None else {}
        yield "sensor", "objects", told | _count("Objects", "value_json.objects") | total
        for label, slug in _slugs(stream.classes or ()):
            yield "sensor", f"objects_{slug}", told | _count(label, "value_json.objects", label)
        if tracking is None:
            return
        for zone in tracking.zones:
            for component, name, entity in _of_zone(zone):
                yield component, name, told | entity
        for line in tracking.lines:
            for name, entity in _of_line(line):
                yield "sensor", name, told | entity
        if tracking.zones or tracking.lines:
            yield "event", "events", {"state_topic": f"{below}/events", **_EVENTS}


_EVENTS: Entity = {
    "name": "Events",
    "event_types": list(_KINDS),
    "value_template": (
        "{{ {'event_type': value_json.kind, 'zone': value_json.zone, 'line': value_json.line, "
        "'direction': value_json.direction, 'label': value_json.label, 'track_id': value_json.track_id, "
        "'duration_s': value_json.duration_s, 'captured_at': value_json.captured_at} | tojson }}"
    ),
}


def _of_zone(zone: ZoneConfig) -> Iterator[tuple[str, str, Entity]]:
    counts = f"value_json.zones.get({json.dumps(zone.id)}, {{}})"
    name = f"zone_{zone.id}"
    yield "sensor", name, _count(zone.id, counts)
    occupied = _on_if(f"{counts}.values() | sum > 0")
    about = {"name": f"{zone.id} occupied", "device_class": "occupancy", "value_template": occupied}
    yield "binary_sensor", f"occupied_{zone.id}", about
    for label, slug in _slugs(zone.classes or ()):
        yield "sensor", f"{name}_{slug}", _count(f"{zone.id} {label}", counts, label)


def _of_line(line: LineConfig) -> Iterator[tuple[str, Entity]]:
    for way in ("forward", "backward"):
        counts = f"value_json.lines.get({json.dumps(line.id)}, {{}}).get('{way}', {{}})"
        total = _count(f"{line.id} {way}", counts) | {"state_class": "total_increasing"}
        yield f"line_{line.id}_{way}", total


def _count(name: str, counts: str, label: str | None = None) -> Entity:
    """`label` None: all labels."""
    value = f"{counts}.values() | sum" if label is None else f"{counts}.get({json.dumps(label)}, 0)"
    return {"name": name, "state_class": "measurement", "value_template": f"{{{{ {value} }}}}"}


def _on_if(condition: str) -> str:
    return f"{{{{ 'ON' if {condition} else 'OFF' }}}}"


def _available_if(condition: str) -> str:
    return f"{{{{ 'online' if {condition} else 'offline' }}}}"


def _slugs(labels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each label with a topic level of its own."""
    taken: set[str] = set()
    for label in labels:
        slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "label"
        while slug in taken:
            slug += "-x"
        taken.add(slug)
        yield label, slug
