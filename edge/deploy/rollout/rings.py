"""The tags of the rings: what each names, and giving it something else."""

from __future__ import annotations

from dataclasses import dataclass

from edge.bundle.manifest import MAX_MANIFEST_BYTES, Manifest, decode_manifest
from edge.deploy.publish.binding import RegistryWriter
from edge.deploy.rollout.kept import put_blob
from edge.errors import DeployError
from edge.registry.artifact import EMPTY_CONTENT, EMPTY_LAYER, NOTHING
from edge.registry.client import RegistryClient
from edge.registry.note import encode_note
from edge.registry.reference import ring_tag

__all__ = ["PublishedRelease", "RingTags"]


@dataclass(frozen=True, slots=True)
class PublishedRelease:
    """A release that lies in a registry; its manifest is not verified, which is the devices' to do."""

    manifest: Manifest
    digest: str


class RingTags:
    """Reads and moves the tags in the repository of `client`; every method raises DeployError `registry.*`."""

    def __init__(self, client: RegistryClient, writer: RegistryWriter) -> None:
        self._client, self._writer = client, writer

    def release(self, tag: str) -> PublishedRelease:
        """Return the release that a tag names."""
        artifact, digest = self._client.artifact(tag)
        return PublishedRelease(
            decode_manifest(self._client.blob(artifact.manifest, most_bytes=MAX_MANIFEST_BYTES)), digest
        )

    def release_of(self, channel: str, ring: str) -> PublishedRelease | None:
        """Return the release that a ring has; None: it has none."""
        try:
            return self.release(ring_tag(channel, ring))
        except DeployError as error:
            if error.code == "registry.missing":
                return None
            raise

    def digest_of(self, channel: str, ring: str) -> str | None:
        """Return the digest of what a ring's tag names, as it was sent; None: there is no such tag."""
        try:
            return self._client.manifest(ring_tag(channel, ring))[1]
        except DeployError as error:
            if error.code == "registry.missing":
                return None
            raise

    def give(self, channel: str, ring: str, digest: str) -> None:
        """Have a ring's tag name the artifact of a digest, byte for byte."""
        content, found = self._client.manifest(digest)
        if found != digest:
            raise DeployError(
                "registry.damaged",
                f"{self._client.name_of(digest[:19])}: what came is something else",
                hint="look at the registry's storage, and publish again",
            )
        self._writer.tag(content, ring_tag(channel, ring))

    def take_away(self, channel: str, ring: str) -> None:
        """Have a ring's tag name nothing that a device would take."""
        put_blob(self._writer, EMPTY_LAYER, EMPTY_CONTENT)
        self._writer.put_manifest(encode_note(NOTHING), ring_tag(channel, ring))
