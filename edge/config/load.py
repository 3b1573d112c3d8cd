"""Read a pipeline file strictly. Every problem says `file:line: path: what came, what is expected, what to do`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from edge.config.convert import convert, split_location
from edge.config.files import overwritten
from edge.config.pipeline import Pipeline
from edge.config.schema import MqttConfig, PipelineConfig, SpoolConfig, StreamConfig
from edge.config.tracking import tracking_contradictions
from edge.config.uris import is_fixed, local_path
from edge.config.yaml_file import read_yaml
from edge.document import Location, spell
from edge.errors import ConfigError

__all__ = ["load_pipeline", "mqtt_from_options"]

_REFERENCE = "pipelines/reference.yaml"
_MAY_BE_FILES = ("http", "https")
_LIVE_SCHEMES = ("rtsp", "rtsps", "http", "https", "v4l2", "csi", "test")


def load_pipeline(path: Path, *, is_for_here: bool = True) -> Pipeline:
    """Return the pipeline in `path`.

    Args:
        path: the file.
        is_for_here: it is to run on this machine; otherwise clips that it names by their whole path need not exist.

    Raises:
        ConfigError: naming file, line and key, if it cannot be used as written.
    """
    document = read_yaml(path)
    pipeline = Pipeline(config=convert(document, PipelineConfig, see=_REFERENCE), document=document)
    for location, problem in _contradictions(pipeline, is_for_here=is_for_here):
        raise document.error(location, problem)
    return pipeline


def mqtt_from_options(given: Mapping[str, object]) -> MqttConfig:
    """Return a broker that is described by command-line options, named as the keys of `MqttConfig`; None: default.

    Raises:
        ConfigError: if a value cannot be used.
    """
    try:
        return msgspec.convert({key: value for key, value in given.items() if value is not None}, MqttConfig)
    except msgspec.ValidationError as error:
        text, location = split_location(str(error))
        raise ConfigError(f"--{'.'.join(map(str, location))}: {text[:1].lower()}{text[1:]}") from None


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
    yield from _overwritten(pipeline)


def _overwritten(pipeline: Pipeline) -> Iterator[tuple[Location, str]]:
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
        yield from tracking_contradictions(index, stream)
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
            yield ("model", key), f"no such file: {pipeline.resolve(text)}; paths start at the pipeline file's folder"


def _stream_contradictions(
    pipeline: Pipeline, index: int, stream: StreamConfig, *, may_be_absent: bool
) -> Iterator[tuple[Location, str]]:
    here = ("streams", index, "uri")
    try:
        path = local_path(stream.uri, pipeline.path.parent)
        if path is not None:
            if not os.path.isfile(path) and not may_be_absent:
                yield here, f"no such file: {path}; paths start at the file's folder"
            if stream.max_age_ms is not None and not stream.realtime:
                problem = (
                    "a file waits for its turn and none of its frames is dropped; remove it, or use realtime: true"
                )
                yield ("streams", index, "max_age_ms"), problem
            return
        address = urlsplit(stream.uri)
    except ValueError as error:
        yield here, f"{error}"
        return
    if address.scheme not in _LIVE_SCHEMES:
        yield here, f"unknown scheme {address.scheme!r}; use a path, or one of {', '.join(('file', *_LIVE_SCHEMES))}"
    if address.password is not None:
        yield here, "a password in a file is read by everybody; store it as a credential"
    for key in ("loop", "realtime"):
        if getattr(stream, key) and address.scheme not in _MAY_BE_FILES:
            yield ("streams", index, key), f"a {address.scheme} stream is live already; {key!r} is for files, remove it"
