"""The files of a release, and its pipeline file: written anew with the paths that they have there."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge.bundle.manifest import Role
from edge.config.pipeline import Pipeline
from edge.config.schema import TlsConfig
from edge.config.uris import is_fixed, local_path
from edge.config.yaml_file import yaml_text
from edge.digest import sha256_and_length
from edge.document import Location
from edge.errors import DeployError

__all__ = ["PIPELINE", "BundleEntry", "Contents", "collect_contents", "digest_of"]

MODEL, CALIBRATION, PIPELINE = "model.onnx", "model.calib.json", "pipeline.yaml"
_HEAD = "# Written by edge-deploy bundle. What it names lies beside it; absolute paths are the device's own.\n"


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """A file of the release: its role, and its content or where it lies."""

    role: Role
    content: Path | bytes


@dataclass(slots=True)
class Contents:
    """Files by path in the release."""

    entries: dict[str, BundleEntry] = field(default_factory=dict)

    def add(self, path: str, role: Role, content: Path | bytes) -> None:
        """Add one."""
        self.entries[path] = BundleEntry(role, content)

    def adopt(self, folder: str, role: Role, source: Path) -> str:
        """Add the file `source` under a name that is free in `folder`, and return its path; a file is added once."""
        for path, entry in self.entries.items():
            if entry.content == source:
                return path
        stem, suffix = _plain(source.stem).lstrip(".-") or "file", _plain(source.suffix)
        name, number = f"{stem}{suffix}", 1
        while f"{folder}/{name}" in self.entries:
            number += 1
            name = f"{stem}-{number}{suffix}"
        self.add(f"{folder}/{name}", role, source)
        return f"{folder}/{name}"


def collect_contents(pipeline: Pipeline, *, needs_table: bool) -> Contents:
    """Return pipeline, model, table, certificates and clips as a release has them.

    Args:
        pipeline: that was read without complaints.
        needs_table: the release runs by the pipeline's calibration table; otherwise the table stays here.

    Raises:
        DeployError: `bundle.secret` for a private key, `bundle.path` for a path that means nothing on a device.
    """
    contents, values = Contents(), copy.deepcopy(pipeline.document.content)
    model = pipeline.config.model
    contents.add(MODEL, Role.MODEL, pipeline.resolve(model.onnx))
    values["model"]["onnx"] = MODEL
    values["model"].pop("calibration", None)
    values["model"].pop("license", None)  # the SBOM has it; an older device would not know the key
    if needs_table and model.calibration is not None:
        contents.add(CALIBRATION, Role.CALIBRATION, pipeline.resolve(model.calibration))
        values["model"]["calibration"] = CALIBRATION
    _clips(pipeline, contents, values)
    _certificates(pipeline, contents, values)
    _journal(pipeline)
    contents.add(PIPELINE, Role.PIPELINE, (_HEAD + yaml_text(values)).encode("utf-8"))
    return contents


def _clips(pipeline: Pipeline, contents: Contents, values: Mapping[str, Any]) -> None:
    for index, stream in enumerate(pipeline.config.streams):
        path = None if is_fixed(stream.uri) else local_path(stream.uri, pipeline.path.parent)
        if path is not None:
            values["streams"][index]["uri"] = contents.adopt("clips", Role.CLIP, path)


def _certificates(pipeline: Pipeline, contents: Contents, values: Mapping[str, Any]) -> None:
    tls = None if pipeline.config.mqtt is None else pipeline.config.mqtt.tls
    if not isinstance(tls, TlsConfig):
        return
    if tls.key is not None and not Path(tls.key).is_absolute():
        raise _refuse(
            pipeline,
            ("mqtt", "tls", "key"),
            "bundle.secret",
            "a private key does not travel in a bundle",
            "put it on the device (mode 0600) and name it here by its absolute path there",
        )
    for key, text in (("ca", tls.ca), ("certificate", tls.certificate)):
        if text is None or Path(text).is_absolute():
            continue
        path = pipeline.resolve(text)
        _require_no_secret(pipeline, ("mqtt", "tls", key), path)
        values["mqtt"]["tls"][key] = contents.adopt("certificates", Role.CERTIFICATE, path)


def _require_no_secret(pipeline: Pipeline, location: Location, path: Path) -> None:
    try:
        has_secret = b"PRIVATE KEY" in path.read_bytes()
    except OSError as error:
        raise _refuse(
            pipeline, location, "bundle.path", f"{path}: cannot be read: {error.strerror}", "mend the path"
        ) from error
    if has_secret:
        raise _refuse(
            pipeline, location, "bundle.secret", f"{path} holds a private key", "leave only the certificate in the file"
        )


def _journal(pipeline: Pipeline) -> None:
    jsonl = pipeline.config.publish.jsonl
    if jsonl is not None and jsonl != "-" and not Path(jsonl).is_absolute():
        raise _refuse(
            pipeline,
            ("publish", "jsonl"),
            "bundle.path",
            f"{jsonl!r} would be a file inside the release, which nobody writes to",
            "use '-' (the journal), or an absolute path of the device",
        )


def _refuse(pipeline: Pipeline, location: Location, code: str, problem: str, hint: str) -> DeployError:
    return DeployError(code, pipeline.error(location, problem).problem, hint=hint)


def _plain(text: str) -> str:
    # What the manifest takes as a name; the rest of a file's name has no meaning for a device.
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:80]


def digest_of(entry: BundleEntry) -> tuple[str, int]:
    """Return SHA-256 and length of an entry.

    Raises:
        DeployError: `bundle.path`, if it cannot be read.
    """
    if isinstance(entry.content, bytes):
        return hashlib.sha256(entry.content).hexdigest(), len(entry.content)
    try:
        return sha256_and_length(entry.content)
    except OSError as error:
        raise DeployError("bundle.path", f"{entry.content}: cannot be read: {error.strerror}") from error
