"""Which software a release on this device runs with, and whether it is here. Standard library only."""

from __future__ import annotations

from edge.bundle.manifest import Manifest
from edge.bundle.software import software_of
from edge.device.device import Device
from edge.errors import DeployError
from edge.runtime.software.running import installed, running_key

__all__ = ["bind", "chosen_key", "is_this", "require_software"]


def bind(device: Device, manifest: Manifest) -> None:
    """Bind a staged release to what it brings, else to what the release runs with that serves now."""
    name, brought = manifest.release, software_of(manifest)
    if brought is not None:
        device.releases.attach_software(name, brought.key)
        return
    current = device.releases.current()
    if current not in (None, name) and device.releases.software_key(name) is None:
        inherited = chosen_key(device, current or "")
        if inherited is not None:
            device.releases.attach_software(name, inherited)


def chosen_key(device: Device, release: str) -> str | None:
    """Return the key of the software that a release runs with, here or not; None: what is installed.

    That is so also where provision has installed something since: it has the last word.
    """
    key = device.releases.software_key(release)
    if key is None:
        return None
    beside = device.software.beside(key)
    return key if beside in (None, installed()) else None


def is_this(device: Device, release: str) -> bool:
    """Return whether this process is the software that a release runs with: then it knows what an engine depends on."""
    return chosen_key(device, release) == running_key()


def require_software(device: Device, release: str) -> None:
    """Pass if this process is the software that a release runs with.

    Raises:
        DeployError: `device.software.missing`.
    """
    key = chosen_key(device, release)
    if key == running_key():
        return
    if key is not None and device.software.beside(key) is None:
        problem = f"release {release} runs with software {key[:12]}, which is not here"
    else:
        problem = f"release {release} runs with {_named(key)}, this is {_named(running_key())}"
    raise DeployError("device.software.missing", problem, hint="it is installed again by itself, or: push it again")


def _named(key: str | None) -> str:
    return "what is installed" if key is None else f"software {key[:12]}"
