"""The files that a pipeline file names: what is read when it runs, and where its messages go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from edge.config.pipeline import Pipeline
from edge.config.schema import TlsConfig
from edge.config.uris import local_path
from edge.document import Location

__all__ = ["files_of_pipeline", "overwritten"]

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


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them is not there
        return False
