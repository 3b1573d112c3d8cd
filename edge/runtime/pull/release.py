"""A release that lies in a registry, as a delivery needs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from edge.bundle.manifest import MAX_MANIFEST_BYTES, BundledFile, Manifest, decode_manifest
from edge.bundle.sshsig import MAX_SIGNATURE_BYTES
from edge.registry.artifact import Artifact
from edge.registry.blob import BlobFile
from edge.registry.client import RegistryClient

__all__ = ["RegistryRelease", "fetch_release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRelease:
    """The manifest and its signature are here, unverified: the agent verifies them. Files are read when asked for."""

    manifest: Manifest
    manifest_bytes: bytes
    signature: bytes
    _client: RegistryClient = field(repr=False)
    _stop: threading.Event = field(repr=False)

    @contextmanager
    def opened(self, file: BundledFile) -> Iterator[BinaryIO]:
        """Give a file of the manifest as the registry sends it; the agent checks its digest."""
        with BlobFile(self._client, file.sha256, file.length_bytes, stop=self._stop) as blob:
            yield cast(BinaryIO, blob)


def fetch_release(client: RegistryClient, artifact: Artifact, stop: threading.Event) -> RegistryRelease:
    """Return the release of an artifact.

    Raises:
        DeployError: `registry.*`; `verify.manifest.*` if its manifest is not usable.
    """
    content = client.blob(artifact.manifest, most_bytes=MAX_MANIFEST_BYTES)
    signature = client.blob(artifact.signature, most_bytes=MAX_SIGNATURE_BYTES)
    return RegistryRelease(
        manifest=decode_manifest(content), manifest_bytes=content, signature=signature, _client=client, _stop=stop
    )
