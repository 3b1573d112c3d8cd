"""What a release is made of, as a CycloneDX 1.6 document: the model with its card, its data, and the software.

The same release gives the same bytes: there is no time in it, and its serial number is a digest of the rest.
Source: ECMA-424 (CycloneDX 1.6), bom-1.6.schema.json.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge.bundle.strict_json import canonical

__all__ = ["ModelCard", "make_sbom"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What is said of the model.

    Attributes:
        inputs, outputs: one sentence each.
        calibration_sha256: of the table; None: no table.
        dataset_sha256: of the images that the table was made from, as a set; None: not known.
        method: how ranges were chosen.
        metrics: what was measured, e.g. ("mAP50-95", "float", 0.335).
    """

    name: str
    sha256: str
    family: str
    inputs: str
    outputs: str
    precision: str
    calibration_sha256: str | None = None
    dataset_sha256: str | None = None
    dataset_images: int | None = None
    method: str | None = None
    metrics: Sequence[tuple[str, str, float]] = field(default_factory=tuple)


def make_sbom(
    card: ModelCard, *, name: str, made_by: str, files: Mapping[str, str], software: Mapping[str, str]
) -> bytes:
    """Return the document.

    Args:
        card: of the model.
        name: of the pipeline.
        made_by: version of edge-deploy.
        files: SHA-256 of the other files of the release, by path.
        software: versions of what took part in making it, by name.
    """
    components = [_model(card), *_calibration(card), *_files(files), *_software(software)]
    content: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "bom-ref": "release", "name": name},
            "tools": {"components": [{"type": "application", "name": "edge-deploy", "version": made_by}]},
        },
        "components": components,
        "dependencies": [
            {"ref": "release", "dependsOn": sorted(one["bom-ref"] for one in components)},
            *([{"ref": "model", "dependsOn": ["calibration"]}] if card.calibration_sha256 else []),
        ],
    }
    digest = hashlib.sha256(canonical(content)).digest()
    return canonical({**content, "serialNumber": uuid.UUID(bytes=digest[:16], version=4).urn})


def _model(card: ModelCard) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "task": "object detection",
        "architectureFamily": card.family,
        "inputs": [{"format": card.inputs}],
        "outputs": [{"format": card.outputs}],
    }
    if card.dataset_sha256 is not None:
        parameters["datasets"] = [{"ref": "calibration-images"}]
    model_card: dict[str, Any] = {"modelParameters": parameters}
    if card.metrics:
        model_card["quantitativeAnalysis"] = {
            "performanceMetrics": [
                {"type": kind, "slice": part, "value": f"{value:.5g}"} for kind, part, value in card.metrics
            ]
        }
    properties = {"edge:precision": card.precision, "edge:calibration:method": card.method}
    return {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": card.name,
        "hashes": _hashes(card.sha256),
        "modelCard": model_card,
        "properties": [{"name": key, "value": value} for key, value in properties.items() if value is not None],
    }


def _calibration(card: ModelCard) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if card.calibration_sha256 is not None:
        made.append(
            {
                "type": "data",
                "bom-ref": "calibration",
                "name": "calibration table",
                "hashes": _hashes(card.calibration_sha256),
                "data": [{"type": "configuration", "name": "ranges of activations, edge.calib/1"}],
            }
        )
    if card.dataset_sha256 is not None:
        made.append(
            {
                "type": "data",
                "bom-ref": "calibration-images",
                "name": "calibration images",
                "description": "not part of the release; the hash is over the sorted SHA-256 of the image files",
                "hashes": _hashes(card.dataset_sha256),
                "data": [{"type": "dataset", "name": f"{card.dataset_images} images"}],
            }
        )
    return made


def _files(files: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"type": "file", "bom-ref": f"file:{path}", "name": path, "hashes": _hashes(sha256)}
        for path, sha256 in sorted(files.items())
    ]


def _software(software: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name.lower()}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name.lower()}@{version}",
        }
        for name, version in sorted(software.items())
    ]


def _hashes(sha256: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}]
