"""What a delivery needs of a release."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

from edge.bundle.manifest import BundledFile, Manifest

__all__ = ["Deliverable"]


class Deliverable(Protocol):
    """A release that can be read here; `edge.bundle.folder.Bundle` is one, a release in a registry another."""

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

    def opened(self, file: BundledFile) -> AbstractContextManager[BinaryIO]:
        """Give a file of the manifest open for `seek` and `read`; DeployError if it cannot be read or has changed."""
        ...
