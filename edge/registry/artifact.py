"""A release as an OCI artifact: one layer for the signed manifest, one for the signature, one per file.

What an artifact says counts for nothing: a device believes the signed manifest only, and asks for the files by the
SHA-256 that stand there. Source of the format: OCI Image Format Specification 1.1, "Image Manifest".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edge.errors import DeployError
from edge.reading import json_value

__all__ = [
    "ARTIFACT_TYPE",
    "EMPTY",
    "EMPTY_CONTENT",
    "EMPTY_LAYER",
    "FILE",
    "MANIFEST",
    "MAX_ARTIFACT_BYTES",
    "NOTHING",
    "OCI_MANIFEST",
    "SIGNATURE",
    "Artifact",
    "ArtifactLayer",
    "decode_artifact",
    "descriptor",
    "encode_artifact",
]

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT_TYPE = "application/vnd.edge-deploy.release.v1"
MANIFEST = "application/vnd.edge-deploy.manifest.v1+json"
SIGNATURE = "application/vnd.edge-deploy.signature.v1"
FILE = "application/vnd.edge-deploy.file.v1"
EMPTY = "application/vnd.oci.empty.v1+json"
EMPTY_CONTENT = b"{}"
NOTHING = "application/vnd.edge-deploy.nothing.v1"
"""What a tag names where a rollout has been stopped and there was nothing before: no registry has to forget a tag."""

MAX_ARTIFACT_BYTES = 4 * 1024**2
"""No registry has to take a longer one (OCI Distribution Specification 1.1, "Pushing Manifests")."""

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_TITLE = "org.opencontainers.image.title"


@dataclass(frozen=True, slots=True)
class ArtifactLayer:
    """One blob of an artifact; `title` is for people who look into a registry.

    Raises:
        ValueError: if the digest is none, or the length is negative.
    """

    media_type: str
    sha256: str
    length_bytes: int
    title: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256) or self.length_bytes < 0:
            raise ValueError(f"{self.sha256!r} of {self.length_bytes} bytes is no blob")

    @property
    def digest(self) -> str:
        """As registries write it."""
        return f"sha256:{self.sha256}"


EMPTY_LAYER = ArtifactLayer(
    EMPTY, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", len(EMPTY_CONTENT)
)
"""What stands where the format wants a blob and there is nothing to say."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a device needs of an artifact: where the signed manifest and its signature lie."""

    manifest: ArtifactLayer
    signature: ArtifactLayer


def encode_artifact(
    manifest: ArtifactLayer, signature: ArtifactLayer, files: Iterable[ArtifactLayer], *, annotations: Mapping[str, str]
) -> dict[str, Any]:
    """Return the OCI manifest of a release, ready to be written as JSON."""
    return {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": ARTIFACT_TYPE,
        "config": descriptor(EMPTY_LAYER),
        "layers": [descriptor(one) for one in (manifest, signature, *files)],
        "annotations": dict(annotations),
    }


def decode_artifact(content: bytes, *, where: str) -> Artifact:
    """Return what an OCI manifest says of a release.

    Raises:
        DeployError: `registry.artifact` with `where`, if it is none of ours or says contradictory things.
    """
    try:
        told = json_value(content)
    except ValueError as error:
        raise _wrong(where, f"it cannot be read: {error}") from None
    if isinstance(told, dict) and told.get("artifactType") == NOTHING:
        hint = "devices look again; publish a release, or roll one out"
        raise DeployError("registry.missing", f"{where}: there is no release; a rollout was stopped", hint=hint)
    if not isinstance(told, dict) or told.get("artifactType") != ARTIFACT_TYPE:
        kind = told.get("artifactType") or told.get("mediaType") if isinstance(told, dict) else type(told).__name__
        raise _wrong(where, f"it is {str(kind)[:80]!r}")
    layers = told.get("layers")
    if not isinstance(layers, list):
        raise _wrong(where, "it has no layers")
    return Artifact(_only(layers, MANIFEST, where), _only(layers, SIGNATURE, where))


def _only(layers: list[Any], media_type: str, where: str) -> ArtifactLayer:
    found = [one for one in layers if isinstance(one, dict) and one.get("mediaType") == media_type]
    if len(found) != 1:
        raise _wrong(where, f"it has {len(found)} layers of {media_type}, not one")
    digest, size = found[0].get("digest"), found[0].get("size")
    match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None or not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise _wrong(where, f"its layer of {media_type} has no SHA-256 or no size")
    return ArtifactLayer(media_type, match[1], size)


def descriptor(layer: ArtifactLayer) -> dict[str, Any]:
    """Return how an OCI manifest names a blob."""
    titled = {"annotations": {_TITLE: layer.title}} if layer.title else {}
    return {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.length_bytes, **titled}


def _wrong(where: str, what: str) -> DeployError:
    return DeployError(
        "registry.artifact",
        f"{where}: expected a release of edge-deploy, but {what}",
        hint="look at what was published there; edge-deploy publish makes such artifacts",
    )
