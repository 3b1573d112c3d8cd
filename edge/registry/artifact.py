"""A release as an OCI artifact: one layer for the signed manifest, one for the signature, one per file.

What an artifact says counts for nothing: a device believes the signed manifest only, and asks for the files by the
SHA-256 that stand there. Source of the format: OCI Image Format Specification 1.1, "Image Manifest".
"""

from __future__ import annotations

import base64
import json
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
    "TRUST_TYPE",
    "Artifact",
    "ArtifactLayer",
    "decode_artifact",
    "descriptor",
    "encode_artifact",
    "encode_note",
    "is_nothing",
    "layer_of_note",
    "statement_in",
    "with_statement",
]

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT_TYPE = "application/vnd.edge-deploy.release.v1"
MANIFEST = "application/vnd.edge-deploy.manifest.v1+json"
SIGNATURE = "application/vnd.edge-deploy.signature.v1"
FILE = "application/vnd.edge-deploy.file.v1"
EMPTY = "application/vnd.oci.empty.v1+json"
EMPTY_CONTENT = b"{}"
NOTHING = "application/vnd.edge-deploy.nothing.v1"
"""Type of an artifact with nothing to take: no registry has to forget a tag."""

TRUST_TYPE = "application/vnd.edge-deploy.trust.v1"
"""Type of a trust document."""

MAX_ARTIFACT_BYTES = 4 * 1024**2
"""No registry has to take a longer one (OCI Distribution Specification 1.1, "Pushing Manifests")."""

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_TITLE = "org.opencontainers.image.title"
_STATEMENT, _STATED_BY = "edge-deploy.ring.statement", "edge-deploy.ring.signature"


@dataclass(frozen=True, slots=True)
class ArtifactLayer:
    """One blob of an artifact; `title` is for people. ValueError for a digest that is none, or a negative length."""

    media_type: str
    sha256: str
    length_bytes: int
    title: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256) or self.length_bytes < 0:
            raise ValueError(f"{self.sha256!r} of {self.length_bytes} bytes is no blob")

    @property
    def digest(self) -> str:
        return f"sha256:{self.sha256}"


EMPTY_LAYER = ArtifactLayer(
    EMPTY, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", len(EMPTY_CONTENT)
)
"""The empty blob, where the format wants one."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact as a device needs it: where the signed manifest and its signature lie."""

    manifest: ArtifactLayer
    signature: ArtifactLayer


def encode_artifact(
    manifest: ArtifactLayer, signature: ArtifactLayer, files: Iterable[ArtifactLayer], *, annotations: Mapping[str, str]
) -> dict[str, Any]:
    return {**encode_note(ARTIFACT_TYPE, manifest, signature, *files), "annotations": dict(annotations)}


def decode_artifact(content: bytes, *, where: str) -> Artifact:
    """DeployError with `where`: `registry.artifact` if contradictory, `registry.missing` where nothing is to be had."""
    try:
        told = json_value(content)
    except ValueError as error:
        raise _wrong(where, f"it cannot be read: {error}") from None
    if isinstance(told, dict) and told.get("artifactType") == NOTHING:
        hint = "devices look again; edge-deploy promote gives the ring a release"
        raise DeployError(
            "registry.missing",
            f"{where}: there is no release; what was there is withdrawn, or nothing was promoted yet",
            hint=hint,
        )
    if not isinstance(told, dict) or told.get("artifactType") != ARTIFACT_TYPE:
        kind = told.get("artifactType") or told.get("mediaType") if isinstance(told, dict) else type(told).__name__
        raise _wrong(where, f"it is {str(kind)[:80]!r}")
    layers = told.get("layers")
    if not isinstance(layers, list):
        raise _wrong(where, "it has no layers")
    return Artifact(_only(layers, MANIFEST, where), _only(layers, SIGNATURE, where))


def is_nothing(content: bytes) -> bool:
    """Return whether an OCI manifest says that there is nothing under its tag."""
    try:
        told = json_value(content)
    except ValueError:
        return False
    return isinstance(told, dict) and told.get("artifactType") == NOTHING


def with_statement(content: bytes, statement: bytes, signature: bytes) -> bytes:
    """Return an OCI manifest with a statement beside what it says, so that one tag moves both at once."""
    told = json_value(content)
    beside = {_STATEMENT: base64.b64encode(statement).decode(), _STATED_BY: base64.b64encode(signature).decode()}
    return json.dumps({**told, "annotations": {**told.get("annotations", {}), **beside}}).encode()


def statement_in(content: bytes) -> tuple[str, str] | None:
    """Return the statement and its signature that lie in an OCI manifest, in base64; None: there are none."""
    try:
        beside = json_value(content)["annotations"]
        statement, signature = beside[_STATEMENT], beside[_STATED_BY]
    except (ValueError, TypeError, KeyError):
        return None
    return (statement, signature) if isinstance(statement, str) and isinstance(signature, str) else None


def encode_note(artifact_type: str, *layers: ArtifactLayer) -> dict[str, Any]:
    """Without a layer its kind is all that a note says."""
    return {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": artifact_type,
        "config": descriptor(EMPTY_LAYER),
        "layers": [descriptor(one) for one in layers or (EMPTY_LAYER,)],
    }


def layer_of_note(content: bytes, artifact_type: str, *, where: str) -> ArtifactLayer:
    """DeployError `registry.artifact` with `where` if it is no such note."""
    try:
        told = json_value(content)
        layers = told["layers"] if told["artifactType"] == artifact_type else []
        (one,) = (layer for layer in layers if layer["mediaType"] != EMPTY)
        layer = _layer_of(one)
    except (ValueError, TypeError, KeyError):
        layer = None
    if layer is None:
        raise DeployError(
            "registry.artifact",
            f"{where}: expected {artifact_type}, and it is something else",
            hint="look at what was put there: nothing of ours writes it",
        )
    return layer


def _only(layers: list[Any], media_type: str, where: str) -> ArtifactLayer:
    found = [one for one in layers if isinstance(one, dict) and one.get("mediaType") == media_type]
    if len(found) != 1:
        raise _wrong(where, f"it has {len(found)} layers of {media_type}, not one")
    layer = _layer_of(found[0])
    if layer is None:
        raise _wrong(where, f"its layer of {media_type} has no SHA-256 or no size")
    return layer


def _layer_of(told: Mapping[str, Any]) -> ArtifactLayer | None:
    """Return what a descriptor names; None where it has no kind, no SHA-256 or no size."""
    kind, digest, size = (told.get(name) for name in ("mediaType", "digest", "size"))
    match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if not isinstance(kind, str) or match is None or type(size) is not int or size < 0:
        return None
    return ArtifactLayer(kind, match[1], size)


def descriptor(layer: ArtifactLayer) -> dict[str, Any]:
    titled = {"annotations": {_TITLE: layer.title}} if layer.title else {}
    return {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.length_bytes, **titled}


def _wrong(where: str, what: str) -> DeployError:
    return DeployError(
        "registry.artifact",
        f"{where}: expected a release of edge-deploy, but {what}",
        hint="look at what was published there; edge-deploy publish makes such artifacts",
    )
