"""What the SBOM of a release says of software: each device's from the lock, and what took part in making it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Mapping

from edge.bundle.sbom_software import Library
from edge.deploy.provision.jetson import PYCUDA_SOURCE_SHA256, PYCUDA_VERSION
from edge.deploy.provision.lock import Lock, LockedWheel
from edge.deploy.provision.own_wheel import OURS, own_wheel
from edge.errors import DeployError
from edge.version import __version__

__all__ = ["device_software", "tools"]

_TOOK_PART = ("msgspec", "numpy", "onnx", "opencv-python-headless")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def device_software(lock: Lock) -> Mapping[str, tuple[Library, ...]]:
    """Return what this edge-deploy installs on each kind of device, by the kind's name; pip stays on none."""
    ours, why = _own_sha256()
    made = {}
    for environment in lock:
        wheels = [one for one in lock.environments[environment] if one.use != "install"]
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
