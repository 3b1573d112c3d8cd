"""What a push needs of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from edge.bundle.manifest import BundledFile, Manifest

__all__ = ["Pushable"]


class Pushable(Protocol):
    """A release on this machine; `edge.bundle.folder.Bundle` is one."""

    @property
    def manifest(self) -> Manifest:
        """The manifest."""
        ...

    @property
    def manifest_bytes(self) -> bytes:
        """The manifest as it was signed."""
        ...

    @property
    def signature(self) -> bytes:
        """The signature over these bytes."""
        ...

    def path_of(self, file: BundledFile) -> Path:
        """Return where a file of the manifest lies; DeployError `bundle.file` if it has changed."""
        ...
