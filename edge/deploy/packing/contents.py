"""The files of a release, its pipeline file with the paths that they have there, and the software in its SBOM."""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge.bundle.manifest import Role
from edge.bundle.sbom import Library
from edge.config.pipeline import Pipeline
from edge.config.schema import TlsConfig
from edge.config.uris import is_fixed, local_path
from edge.config.yaml_file import yaml_text
from edge.deploy.provision.facts import PYCUDA_SOURCE_SHA256, PYCUDA_VERSION, Lock, LockedWheel
from edge.deploy.provision.wheels import OURS, own_wheel
from edge.digest import sha256_and_length
from edge.document import Location
from edge.errors import DeployError
from edge.version import __version__

__all__ = ["BundleEntry", "Contents", "PIPELINE", "collect_contents", "device_software", "tools"]

MODEL, CALIBRATION, PIPELINE = "model.onnx", "model.calib.json", "pipeline.yaml"
_HEAD = "# Written by edge-deploy bundle. What it names lies beside it; absolute paths are the device's own.\n"


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """A file of the release: its role, its content or where it lies, and what proves that."""

    role: Role
    content: Path | bytes
    sha256: str
    length_bytes: int


@dataclass(slots=True)
class Contents:
    """Files by path in the release."""

    entries: dict[str, BundleEntry] = field(default_factory=dict)

    def add(self, path: str, role: Role, content: Path | bytes) -> None:
        """DeployError `bundle.path` if it cannot be read."""
        if isinstance(content, bytes):
            self.entries[path] = BundleEntry(role, content, hashlib.sha256(content).hexdigest(), len(content))
            return
        try:
            self.entries[path] = BundleEntry(role, content, *sha256_and_length(content))
        except OSError as error:
            raise DeployError("bundle.path", f"{content}: cannot be read: {error.strerror}") from error

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
    """Return pipeline, model, certificates, clips, and the table if the release `needs_table`, as a release has them.

    Raises `DeployError` `bundle.secret` for a private key, `bundle.path` for a path that means nothing on a device.
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
    for index, stream in enumerate(pipeline.config.streams):
        if stream.tls is not None:
            _certificate(pipeline, contents, ("streams", index, "tls", "ca"), values["streams"][index]["tls"])
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
    for key in ("ca", "certificate"):
        _certificate(pipeline, contents, ("mqtt", "tls", key), values["mqtt"]["tls"])


def _certificate(pipeline: Pipeline, contents: Contents, location: Location, section: dict[str, Any]) -> None:
    """Let the file travel that a key names in its section; one by its whole path is the device's own."""
    key = str(location[-1])
    if section.get(key) is None or Path(section[key]).is_absolute():
        return
    path = pipeline.resolve(section[key])
    _require_no_secret(pipeline, location, path)
    section[key] = contents.adopt("certificates", Role.CERTIFICATE, path)


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
            f"{jsonl!r} would be a file inside the release, which is not written to",
            "use '-' (the journal), or an absolute path of the device",
        )


def _refuse(pipeline: Pipeline, location: Location, code: str, problem: str, hint: str) -> DeployError:
    return DeployError(code, pipeline.error(location, problem).problem, hint=hint)


def _plain(text: str) -> str:
    # What the manifest takes as a name; the rest of a file's name has no meaning for a device.
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:80]


_TOOK_PART = ("msgspec", "numpy", "onnx", "opencv-python-headless")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def device_software(lock: Lock) -> Mapping[str, tuple[Library, ...]]:
    """Return what this edge-deploy installs on each kind of device, by the kind's name; pip stays on none."""
    ours, why = _own_sha256()
    made = {}
    for environment, locked in lock.environments.items():
        wheels = [one for one in locked if one.use != "install"]
        needs = tuple(one.name for one in wheels if one.use == "serve")
        jetson_wheels = tuple(one.name for one in wheels if one.use == "jetson")
        libraries = [_library(one) for one in wheels] + [_ours(needs, ours, why)]
        made[str(environment)] = (*libraries, *([_pycuda(jetson_wheels)] if jetson_wheels else []))
    return made


def tools(engine: str | None) -> Mapping[str, str]:
    """Return versions, by name, of what took part here; `engine` says its name and version, None: none ran."""
    found = {"edge-deploy": __version__}
    if engine is not None:
        name, _, found_version = engine.partition(" ")
        found[name] = found_version
    for name in _TOOK_PART:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # a distribution's package may have another name
            continue
    return found


def _library(one: LockedWheel) -> Library:
    return Library(
        name=one.name,
        version=one.version,
        file=one.wheel,
        sha256=one.sha256,
        supplier=one.supplier,
        license=one.license,
        requires=_names(one.requires),
    )


def _names(requirements: tuple[str, ...]) -> tuple[str, ...]:
    found = (_NAME.match(requirement) for requirement in requirements)
    return tuple(re.sub(r"[-_.]+", "-", one.group()).lower() for one in found if one is not None)


def _own_sha256() -> tuple[str | None, str | None]:
    try:
        return hashlib.sha256(own_wheel()).hexdigest(), None
    except DeployError as error:  # provision would refuse; a release can be made all the same
        return None, f"no SHA-256: {error.problem}"


def _ours(requires: tuple[str, ...], sha256: str | None, why_no_hash: str | None) -> Library:
    return Library(
        name="edge-deploy",
        version=__version__,
        file=OURS,
        sha256=sha256,
        why_no_hash=why_no_hash,
        supplier="edge-deploy",
        license="Apache-2.0",
        requires=requires,
    )


def _pycuda(requires: tuple[str, ...]) -> Library:
    return Library(
        name="pycuda",
        version=PYCUDA_VERSION,
        why_no_hash="on Jetsons with a GPU engine; compiled by who deploys, so the hash is that of its source",
        source_sha256=PYCUDA_SOURCE_SHA256,
        supplier="Andreas Kloeckner",
        license="MIT",
        requires=requires,
    )
