"""What a Jetson needs beyond other devices: pycuda, which the package index has as source only.

Its wheels are made once, by `make pycuda-wheels`, and kept in a folder of the cache, from where they are gathered.
"""

from __future__ import annotations

import os
from pathlib import Path

from edge.deploy.provision.facts import ProvisionFacts
from edge.errors import DeployError

__all__ = [
    "EXTRA",
    "PYCUDA_SOURCE_SHA256",
    "PYCUDA_VERSION",
    "PYTHONS",
    "cache",
    "extra_of",
    "pycuda_folder",
    "pycuda_wheel",
]

EXTRA = "jetson"
"""The extra of edge-deploy that such a device gets."""

PYTHONS = {(3, 10): "JetPack 6", (3, 12): "JetPack 7"}
"""Pythons that JetPack's TensorRT has bindings for; with another there is no GPU engine to serve by."""

PYCUDA_VERSION = "2026.1"
PYCUDA_SOURCE_SHA256 = "759516160628ba06f32ce7e563e3f5b9214691dc9528a03ea99ea1073f4e14ba"
"""Of the source that `make pycuda-wheels` compiles."""


def cache() -> Path:
    """Return where what is gathered and made is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edge-deploy"


def pycuda_folder() -> Path:
    """Return where `make pycuda-wheels` puts its wheels."""
    return cache() / "pycuda"


def extra_of(facts: ProvisionFacts) -> str | None:
    """Return the extra of edge-deploy that a device gets; None: it has no GPU that could be used."""
    return EXTRA if facts.l4t is not None and facts.python in PYTHONS else None


def pycuda_wheel(facts: ProvisionFacts, folder: Path | None = None) -> Path:
    """Return the newest wheel of pycuda for a device, from where `make pycuda-wheels` puts it or from a given folder.

    No lock names it, because it is made on this side (docs/adr/0017): its SHA-256 is that of the file found.

    Raises:
        DeployError: `request.pycuda`, if none has been made.
    """
    folder = folder or pycuda_folder()
    python = f"cp{facts.python[0]}{facts.python[1]}"
    found = sorted(folder.glob(f"pycuda-*-{python}-{python}-linux_{facts.architecture}.whl"))
    if found:
        return found[-1]
    raise DeployError(
        "request.pycuda",
        f"{folder} has no wheel of pycuda for Python {facts.python[0]}.{facts.python[1]} on {facts.architecture}, "
        f"which TensorRT needs on this Jetson (L4T {facts.l4t}), and the package index has none",
        hint="make it once: `make pycuda-wheels` in a checkout of edge-deploy (docs/container.md says how else); "
        "or serve by the CPU: --cpu-only",
    )
