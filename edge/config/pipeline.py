"""A pipeline file, strictly read. Every problem says `file:line: path: what came, what is expected, what to do`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from edge.config.convert import convert, given_as
from edge.config.credentials import Credential, read_credential
from edge.config.schema import (
    MaskConfig,
    MqttConfig,
    PipelineConfig,
    PlaceConfig,
    SpoolConfig,
    StreamConfig,
    TlsConfig,
    TrackingConfig,
    ZoneConfig,
)
from edge.config.uris import has_placeholder, has_secret, host_problem, is_encrypted, is_fixed, is_network, local_path
from edge.config.yaml_file import read_yaml
from edge.document import Document, Location, spell
from edge.errors import ConfigError, LackingError

__all__ = [
    "Pipeline",
    "files_of_pipeline",
    "load_pipeline",
    "mqtt_from_options",
    "overwritten",
    "polygon_problem",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline file that was read and found consistent."""

    config: PipelineConfig
    document: Document[ConfigError]

    @property
    def path(self) -> Path:
        return self.document.path

    def error(self, location: Location, problem: str) -> ConfigError:
        """Return an error that points at a key of the file, for what only shows when the pipeline is built."""
        return self.document.error(location, problem)

    def login_of_stream(self, index: int) -> Credential | None:
        """Raises `LackingError` as `read_credential`, with the place in the file."""
        return self._login(("streams", index, "credential"), self.config.streams[index].credential)

    def login_of_broker(self) -> Credential | None:
        """Raises `LackingError` as `read_credential`, with the place in the file."""
        return self._login(("mqtt", "credential"), None if self.config.mqtt is None else self.config.mqtt.credential)

    def _login(self, location: Location, name: str | None) -> Credential | None:
        try:
            return None if name is None else read_credential(name)
        except LackingError as error:
            raise LackingError(str(self.error(location, error.problem)), hint=error.hint) from None

    def class_ids(self, location: Location, wanted: Sequence[str], labels: Sequence[str]) -> list[int]:
        """Return the class ids of the labels that a key of the file names; a model may have several of one label.
        Raises `ConfigError` if the model has no such label; with the label that may be meant.
        """
        unknown = next((label for label in wanted if label not in labels), None)
        if unknown is not None:
            near = difflib.get_close_matches(unknown.lower().replace("_", " "), labels, n=1)
            known = ", ".join(labels[:10]) + (", ..." if len(labels) > 10 else "")
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise self.error(location, f"got {unknown!r}, the labels of the model are {known}{meant}")
        return [class_id for class_id, label in enumerate(labels) if label in wanted]

    def resolve(self, text: str) -> Path:
        """Return a path that the file names: relative ones start at the file's own folder.

        Links are left alone: a release's `model.onnx` is a link to a file whose name says nothing.
        """
        return Path(os.path.abspath(self.path.parent / os.path.expanduser(text)))


_STDOUT = "-"


def files_of_pipeline(pipeline: Pipeline) -> Iterator[tuple[Location, Path]]:
    """Yield each file that a pipeline reads or writes, with the key that names it."""
    yield from _read_files(pipeline)
    jsonl = pipeline.config.publish.jsonl
    if jsonl not in (None, _STDOUT):
        yield ("publish", "jsonl"), pipeline.resolve(jsonl)


def overwritten(pipeline: Pipeline) -> Location | None:
    """Return the key of a file that the messages (`publish.jsonl`) would be written into; `()` is the pipeline file."""
    jsonl = pipeline.config.publish.jsonl
    if jsonl in (None, _STDOUT):
        return None
    target = pipeline.resolve(jsonl)
    files = ((), pipeline.path), *_read_files(pipeline)
    return next((location for location, path in files if _is_same(path, target)), None)


def _read_files(pipeline: Pipeline) -> Iterator[tuple[Location, Path]]:
    config = pipeline.config
    tls = config.mqtt.tls if config.mqtt is not None and isinstance(config.mqtt.tls, TlsConfig) else TlsConfig()
    named: dict[Location, str | None] = {
        ("model", "onnx"): config.model.onnx,
        ("model", "calibration"): config.model.calibration,
        **{("mqtt", "tls", key): getattr(tls, key) for key in ("ca", "certificate", "key")},
    }
    yield from ((location, pipeline.resolve(text)) for location, text in named.items() if text is not None)
    for index, stream in enumerate(config.streams):
        path = local_path(stream.uri, pipeline.path.parent)
        if path is not None:
            yield ("streams", index, "uri"), path
        if stream.tls is not None and stream.tls.ca is not None:
            yield ("streams", index, "tls", "ca"), pipeline.resolve(stream.tls.ca)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them is not there
        return False


Point = tuple[float, float]


def polygon_problem(polygon: Sequence[Point]) -> str | None:
    """Return why this is no zone, None if it is one: its border must not meet itself."""
    count = len(polygon)
    if len(set(polygon)) < count:
        return "a corner is given twice; the border closes by itself, give each corner once"
    sides = [(polygon[i], polygon[(i + 1) % count]) for i in range(count)]
    for i in range(count):
        for j in range(i + 1, count):
            is_neighbour = j == i + 1 or (i == 0 and j == count - 1)
            if not is_neighbour and _meet(*sides[i], *sides[j]):
                return f"its border crosses itself between corners {i} and {j}; give the corners in order around it"
    if abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in sides)) < 1e-6:
        return "it has no area"
    return None


def _meet(a: Point, b: Point, c: Point, d: Point) -> bool:
    def turn(o: Point, p: Point, q: Point) -> float:
        return (p[0] - o[0]) * (q[1] - o[1]) - (p[1] - o[1]) * (q[0] - o[0])

    def is_on(o: Point, p: Point, q: Point) -> bool:
        return min(o[0], p[0]) <= q[0] <= max(o[0], p[0]) and min(o[1], p[1]) <= q[1] <= max(o[1], p[1])

    turns = turn(a, b, c), turn(a, b, d), turn(c, d, a), turn(c, d, b)
    if turns[0] * turns[1] < 0 and turns[2] * turns[3] < 0:
        return True
    ends = (a, b, c), (a, b, d), (c, d, a), (c, d, b)
    return any(value == 0 and is_on(*end) for value, end in zip(turns, ends, strict=True))


_FRAMES_WITHIN = 2  # an object has to be seen so often before it is given up


def place_contradictions(index: int, stream: StreamConfig) -> Iterator[tuple[Location, str]]:
    """Yield where in stream `index` something cannot be so, and why."""
    here = ("streams", index)
    yield from _polygons((*here, "black"), stream.black)
    yield from _polygons((*here, "ignore"), stream.ignore)
    for number, mask in enumerate(stream.ignore):
        yield from _classes((*here, "ignore", number), mask.classes, stream)
    if stream.tracking is not None:
        yield from _tracking((*here, "tracking"), stream.tracking, stream)


def _tracking(here: Location, tracking: TrackingConfig, stream: StreamConfig) -> Iterator[tuple[Location, str]]:
    yield from _places((*here, "zones"), tracking.zones, stream)
    yield from _places((*here, "lines"), tracking.lines, stream)
    yield from _polygons((*here, "zones"), tracking.zones)
    for number, line in enumerate(tracking.lines):
        if line.start == line.end:
            yield (*here, "lines", number, "end"), f"got {line.end}, which is its start too; a line has a length"
    if stream.max_fps is not None and stream.max_fps * tracking.lost_s < _FRAMES_WITHIN:
        least = _FRAMES_WITHIN / stream.max_fps
        problem = f"got {tracking.lost_s:g}, but max_fps {stream.max_fps:g} gives too few frames within it to follow"
        yield (*here, "lost_s"), f"{problem} anything; give at least {least:g}, or raise max_fps"


def _places(here: Location, places: Sequence[PlaceConfig], stream: StreamConfig) -> Iterator[tuple[Location, str]]:
    seen: dict[str, int] = {}
    for number, place in enumerate(places):
        if place.id in seen:
            yield (*here, number, "id"), f"{place.id!r} is already {here[-1]}[{seen[place.id]}]; give each its own id"
        seen[place.id] = number
        yield from _classes((*here, number), place.classes, stream)


def _polygons(here: Location, places: Sequence[MaskConfig | ZoneConfig]) -> Iterator[tuple[Location, str]]:
    for number, place in enumerate(places):
        problem = polygon_problem([(x, y) for x, y in place.polygon])
        if problem is not None:
            yield (*here, number, "polygon"), problem


def _classes(here: Location, labels: Sequence[str] | None, stream: StreamConfig) -> Iterator[tuple[Location, str]]:
    for label in labels or ():
        if stream.classes is not None and label not in stream.classes:
            problem = f"got {label!r}, but the stream reports only {', '.join(stream.classes)}"
            yield (*here, "classes"), f"{problem}; add it to the stream's classes, or remove it here"


_REFERENCE = "pipelines/reference.yaml"
_MAY_BE_FILES = ("http", "https")
_LIVE_SCHEMES = ("rtsp", "rtsps", "http", "https", "v4l2", "csi", "test")


def load_pipeline(path: Path, *, is_for_here: bool = True) -> Pipeline:
    """`is_for_here`: it is to run on this machine; otherwise clips that it names by their whole path need not exist.
    Raises `ConfigError` naming file, line and key, if it cannot be used as written.
    """
    document = read_yaml(path)
    pipeline = Pipeline(config=convert(document, PipelineConfig, see=_REFERENCE), document=document)
    for location, problem in _contradictions(pipeline, is_for_here=is_for_here):
        raise document.error(location, problem)
    return pipeline


def mqtt_from_options(given: Mapping[str, object]) -> MqttConfig:
    """Return a broker that is described by command-line options, named as the keys of `MqttConfig`; None: default.
    Raises `ConfigError` if a value cannot be used.
    """
    return given_as(given, MqttConfig, spelled="--")


def _contradictions(pipeline: Pipeline, *, is_for_here: bool) -> Iterator[tuple[Location, str]]:
    config = pipeline.config
    yield from _missing_files(pipeline)
    if config.model.fallback is not None and config.model.precision != "int8":
        problem = f"{config.model.precision} has nothing to fall back from; remove it, or use precision: int8"
        yield ("model", "fallback"), problem
    if config.mqtt is None and config.publish.jsonl is None:
        yield ("publish",), "nothing would leave this machine; add mqtt, or publish.jsonl ('-' is stdout)"
    yield from _spool_contradictions(config.mqtt)
    yield from _stream_contradictions_of_all(pipeline, is_for_here=is_for_here)
    location = overwritten(pipeline)
    if location is not None:
        what = spell(location).rstrip(": ") or "this pipeline file"
        yield ("publish", "jsonl"), f"messages would be written into {what}; name another file"


def _stream_contradictions_of_all(pipeline: Pipeline, *, is_for_here: bool) -> Iterator[tuple[Location, str]]:
    config = pipeline.config
    seen: dict[str, int] = {}
    for index, stream in enumerate(config.streams):
        if stream.id in seen:
            first = seen[stream.id]
            yield ("streams", index, "id"), f"{stream.id!r} is already streams[{first}]; give each stream its own id"
        seen[stream.id] = index
        yield from place_contradictions(index, stream)
        yield from _tls_contradictions(index, stream)
        yield from _stream_contradictions(
            pipeline, index, stream, may_be_absent=not is_for_here and is_fixed(stream.uri)
        )


def _spool_contradictions(mqtt: MqttConfig | None) -> Iterator[tuple[Location, str]]:
    if mqtt is None or mqtt.spool is False:
        return
    max_mib = (SpoolConfig() if mqtt.spool is True else mqtt.spool).max_mib
    if max_mib < 2 * mqtt.memory_mib:
        where = ("mqtt", "memory_mib") if mqtt.spool is True else ("mqtt", "spool", "max_mib")
        yield where, f"expected spool.max_mib {max_mib} to be at least twice memory_mib {mqtt.memory_mib}; change one"


def _missing_files(pipeline: Pipeline) -> Iterator[tuple[Location, str]]:
    model = pipeline.config.model
    for key, text in (("onnx", model.onnx), ("calibration", model.calibration)):
        if text is not None and not os.path.isfile(pipeline.resolve(text)):
            yield ("model", key), _absent(pipeline.resolve(text))


def _absent(path: Path) -> str:
    try:
        path.stat()
    except PermissionError:
        return f"no right to read: {path}"
    except OSError:  # there is none, or none of such a name
        pass
    return f"no such file: {path}; paths start at the pipeline file's folder"


def _stream_contradictions(
    pipeline: Pipeline, index: int, stream: StreamConfig, *, may_be_absent: bool
) -> Iterator[tuple[Location, str]]:
    here = ("streams", index, "uri")
    try:
        path = local_path(stream.uri, pipeline.path.parent)
        if path is not None:
            if os.path.isdir(path):
                yield here, f"{path} is a folder; name a clip in it, or edge-deploy new takes all of them"
            if not os.path.isfile(path) and not may_be_absent:
                yield here, _absent(path)
            if stream.max_age_ms is not None and not stream.realtime:
                problem = "a file waits for its turn and none of its frames is dropped"
                yield ("streams", index, "max_age_ms"), f"{problem}; remove it, or use realtime: true"
            return
        address = urlsplit(stream.uri)
    except ValueError as error:
        yield here, f"{error}"
        return
    if is_network(stream.uri) and (wrong := host_problem(stream.uri)) is not None:
        yield here, wrong
        return
    if address.scheme not in _LIVE_SCHEMES:
        yield here, f"unknown scheme {address.scheme!r}; use a path, or one of {', '.join(('file', *_LIVE_SCHEMES))}"
    yield from ((here, problem) for problem in _open_secrets(stream, has_password=address.password is not None))
    for key in ("loop", "realtime"):
        if getattr(stream, key) and address.scheme not in _MAY_BE_FILES:
            yield ("streams", index, key), f"a {address.scheme} stream is live already; {key!r} is for files, remove it"


def _tls_contradictions(index: int, stream: StreamConfig) -> Iterator[tuple[Location, str]]:
    if stream.tls is None:
        return
    here = ("streams", index, "tls")
    if not is_encrypted(stream.uri):
        yield here, "is for rtsps:// and https://; remove it, or write the uri so"
    if (stream.tls.ca is None) == (stream.tls.fingerprint is None):
        yield here, "expected either ca or fingerprint; without tls the system's authorities are asked"


def _open_secrets(stream: StreamConfig, *, has_password: bool) -> Iterator[str]:
    if has_password:
        yield "a password in a file is read by everybody; store it as a credential"
    if has_secret(stream.uri):
        yield "a password or token in a file is read by everybody; write {password} in its place, and name a credential"
    if has_placeholder(stream.uri) and stream.credential is None:
        yield "{user} and {password} are those of a credential; name one with the key 'credential'"
