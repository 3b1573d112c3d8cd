"""What a release is made of, as two CycloneDX 1.6 documents: the model with its card and its data, and the software.

What devices have installed is a document of its own, because it is the same for release after release: a device that
has it is not sent it again. The release's document names it by its BOM-Link and its hash.

The same release gives the same bytes: its time is that of what is known of the software, not that of the bundle (the
manifest has that), and its serial number is a digest of the rest.
Source: ECMA-424 (CycloneDX 1.6), bom-1.6.schema.json.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge.bundle.sbom_software import Library, device_components, device_dependencies, licenses, supplier
from edge.bundle.strict_json import canonical

__all__ = ["ModelCard", "SoftwareSbom", "make_sbom", "make_software_sbom"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What is said of the model.

    Attributes:
        inputs, outputs: one sentence each.
        calibration_sha256: of the table; None: no table.
        dataset_sha256: of the images that the table was made from, as a set; None: not known.
        method: how ranges were chosen.
        metrics: what was measured, e.g. ("mAP50-95", "float", 0.335).
        author: as the model file states; None: it does not.
        license: as the pipeline or the model file states; None: neither does, and the document says "unknown".
        license_stated_by: "pipeline file", "model file" or "nobody".
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
    author: str | None = None
    license: str | None = None
    license_stated_by: str = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareSbom:
    """The document of what devices have installed, and its name in others (BOM-Link, `urn:cdx:...`)."""

    content: bytes
    link: str


def make_software_sbom(*, made_at: str, devices: Mapping[str, Sequence[Library]]) -> SoftwareSbom:
    """Return the document of the software of devices.

    Args:
        made_at: when the software was looked up, UTC as in RFC 3339.
        devices: the software of each kind of device, by the kind's name.
    """
    content: dict[str, Any] = {
        "metadata": {
            "timestamp": made_at,
            "component": {"type": "application", "bom-ref": "software", "name": "edge-deploy on devices"},
        },
        "components": device_components(devices),
        "dependencies": [
            {"ref": "software", "dependsOn": sorted(map("device:{}".format, devices))},
            *device_dependencies(devices),
        ],
        "compositions": [{"aggregate": "incomplete", "assemblies": [f"device:{device}"]} for device in sorted(devices)],
    }
    document, serial = _document(content)
    return SoftwareSbom(content=document, link=f"urn:cdx:{serial}/1")


def make_sbom(
    card: ModelCard,
    *,
    name: str,
    made_at: str,
    files: Mapping[str, str],
    software: SoftwareSbom,
    tools: Mapping[str, str],
) -> bytes:
    """Return the document of a release.

    Args:
        card: of the model.
        name: of the pipeline.
        made_at: when the software was looked up, UTC as in RFC 3339.
        files: SHA-256 of the other files of the release, by path.
        software: what devices have installed.
        tools: versions of what took part in making the release, by name.
    """
    own = [_model(card), *_calibration(card), *_files(files)]
    link = {"type": "bom", "url": software.link, "hashes": _hashes(hashlib.sha256(software.content).hexdigest())}
    content: dict[str, Any] = {
        "metadata": {
            "timestamp": made_at,
            "component": {"type": "application", "bom-ref": "release", "name": name, "externalReferences": [link]},
            "tools": {
                "components": [
                    {"type": "application", "name": tool, "version": version} for tool, version in sorted(tools.items())
                ]
            },
        },
        "components": own,
        "dependencies": [
            {"ref": "release", "dependsOn": sorted(one["bom-ref"] for one in own)},
            *([{"ref": "model", "dependsOn": ["calibration"]}] if card.calibration_sha256 else []),
        ],
    }
    return _document(content)[0]


def _document(content: Mapping[str, Any]) -> tuple[bytes, uuid.UUID]:
    whole = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, **content}
    serial = uuid.UUID(bytes=hashlib.sha256(canonical(whole)).digest()[:16], version=4)
    return canonical({**whole, "serialNumber": serial.urn}), serial


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
    properties = {
        "edge:precision": card.precision,
        "edge:calibration:method": card.method,
        "edge:license:stated-by": card.license_stated_by,
    }
    return {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": card.name,
        "hashes": _hashes(card.sha256),
        **supplier(card.author),
        **licenses(card.license or "unknown"),
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


def _hashes(sha256: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}]
