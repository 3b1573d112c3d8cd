"""A note in a registry: an OCI artifact with one layer, or with none, that is no release."""

from __future__ import annotations

import re
from typing import Any

from edge.errors import DeployError
from edge.reading import json_value
from edge.registry.artifact import EMPTY, EMPTY_LAYER, OCI_MANIFEST, ArtifactLayer, descriptor

__all__ = ["encode_note", "layer_of_note"]

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def encode_note(artifact_type: str, layer: ArtifactLayer = EMPTY_LAYER) -> dict[str, Any]:
    """Return the OCI manifest of a note, ready to be written as JSON; without a layer its kind is all that it says."""
    return {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": artifact_type,
        "config": descriptor(EMPTY_LAYER),
        "layers": [descriptor(layer)],
    }


def layer_of_note(content: bytes, artifact_type: str, *, where: str) -> ArtifactLayer:
    """Return the layer of the note in an OCI manifest.

    Raises:
        DeployError: `registry.artifact` with `where`, if it is no such note.
    """
    try:
        told = json_value(content)
        layers = told["layers"] if told["artifactType"] == artifact_type else []
        (one,) = (layer for layer in layers if layer["mediaType"] != EMPTY)
        match = _DIGEST.fullmatch(one["digest"])
        assert match is not None
        return ArtifactLayer(one["mediaType"], match[1], int(one["size"]))
    except (ValueError, TypeError, KeyError, AssertionError):
        raise DeployError(
            "registry.artifact",
            f"{where}: expected {artifact_type}, and it is something else",
            hint="look at what was put there: nothing but a rollout writes it",
        ) from None
