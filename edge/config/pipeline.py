"""A pipeline file as it was read: its settings, and where in the file each of them stands."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.config.credentials import Credential, read_credential
from edge.config.schema import PipelineConfig, TlsConfig
from edge.config.uris import local_path
from edge.document import Document, Location
from edge.errors import ConfigError, LackingError

__all__ = ["Pipeline", "files_of_pipeline", "overwritten"]


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
