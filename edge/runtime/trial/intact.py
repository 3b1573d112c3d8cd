"""Whether files of a release are what was pushed, read once more. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable

from edge.bundle.manifest import BundledFile
from edge.device.device import Device
from edge.errors import DeployError

__all__ = ["damaged", "require_intact"]


def require_intact(device: Device, release: str, files: Iterable[BundledFile]) -> None:
    """Pass if the store has each of these files of a release, with the content that it was pushed with.
    Raises `DeployError` `device.release.missing`; `device.release.damaged` with the blob's digest in its evidence.
    """
    for one in files:
        if not device.store.has(one.sha256):
            raise DeployError(
                "device.release.missing", f"release {release}: {one.path} is not here", hint="push it again"
            )
        if not device.store.verify(one.sha256):
            raise damaged(release, one.path, one.sha256, "is not what was pushed")


def damaged(release: str, path: str, sha256: str, what: str) -> DeployError:
    """Return the error of a file that is not what it was; `put_aside` takes the blob out of the store by it."""
    return DeployError(
        "device.release.damaged",
        f"release {release}: {path} {what}",
        hint="push it again: what is damaged is fetched anew",
        evidence={"path": path, "sha256": sha256},
    )
