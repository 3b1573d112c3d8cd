"""SBOM of a release, as two CycloneDX 1.6 documents: the model with its card and its data, and the software.

What devices have installed is a document of its own, because it is the same for release after release: a device that
has it is not sent it again. The release's document names it by its BOM-Link and its hash. It has one component for each
kind of device, and one for each wheel on it.

The same release gives the same bytes: its time is that of what is known of the software, not that of the bundle (the
manifest has that), and its serial number is a digest of the rest.
Sources: ECMA-424 (CycloneDX 1.6), bom-1.6.schema.json; package URLs: https://github.com/package-url/purl-spec.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from edge.bundle.checks import canonical

__all__ = [
    "Library",
    "ModelCard",
    "SoftwareSbom",
    "device_components",
    "device_dependencies",
    "licenses",
    "make_sbom",
    "make_software_sbom",
    "supplier",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One package as it is on a device; `file` and its `sha256` None: not known here, which `why_no_hash` explains.

    `source_sha256`: of the source that a wheel without a known hash is compiled from. `requires`: their names.
    """

    name: str
    version: str
    file: str | None = None
    sha256: str | None = None
    why_no_hash: str | None = None
    source_sha256: str | None = None
    supplier: str | None = None
    license: str | None = None
    requires: Sequence[str] = field(default_factory=tuple)

    @property
    def ref(self) -> str:
        """The package URL, which names one wheel."""
        whole = f"pkg:pypi/{self.name.lower()}@{quote(self.version)}"
        return whole if self.file is None else f"{whole}?file_name={quote(self.file, safe='')}"


def device_components(devices: Mapping[str, Sequence[Library]]) -> list[dict[str, Any]]:
    """Return the components of all devices, by the name of their kind; a wheel that several have is there once."""
    made = [
        {
            "type": "platform",
            "bom-ref": f"device:{name}",
            "name": name,
            "description": "what edge-deploy provision installs; Python, GStreamer, TensorRT and CUDA are the system's",
        }
        for name in sorted(devices)
    ]
    libraries = {library.ref: library for kind in devices.values() for library in kind}
    return [*made, *(_component(library) for _, library in sorted(libraries.items()))]


def device_dependencies(devices: Mapping[str, Sequence[Library]]) -> list[dict[str, Any]]:
    needs: dict[str, set[str]] = {}
    for name, libraries in devices.items():
        refs = {library.name: library.ref for library in libraries}
        needs[f"device:{name}"] = set(refs.values())
        for library in libraries:
            mine = {refs[other] for other in library.requires if other in refs}
            needs.setdefault(library.ref, set()).update(mine)
    return [{"ref": ref, "dependsOn": sorted(others)} for ref, others in sorted(needs.items())]


def supplier(name: str | None) -> dict[str, Any]:
    """Return the supplier of a component, as its metadata states it; empty where it does not."""
    return {} if name is None else {"supplier": {"name": name}}


def licenses(text: str | None) -> dict[str, Any]:
    """Return the key with the license in the words of its supplier; empty where there are none."""
    return {} if text is None else {"licenses": [{"license": {"name": text}}]}


def _component(library: Library) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": library.ref,
        "name": library.name,
        "version": library.version,
        "purl": library.ref,
        **supplier(library.supplier),
        **licenses(library.license),
    }
    if library.sha256 is not None:
        made["hashes"] = [{"alg": "SHA-256", "content": library.sha256}]
    if library.why_no_hash is not None:
        made["description"] = library.why_no_hash
    if library.source_sha256 is not None:
        source = {"type": "source-distribution", "url": library.ref}
        made["externalReferences"] = [{**source, "hashes": [{"alg": "SHA-256", "content": library.source_sha256}]}]
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Description of the model; `inputs`, `outputs` in one sentence each.

    `calibration_sha256`: of the table; `dataset_sha256`: of the images that it was made from, as a set; None: unknown.
    `method`: how ranges were chosen. `metrics`: e.g. ("mAP50-95", "float", 0.335).
    `author`, `license`: as stated; None: the document says "unknown". `license_stated_by`: "pipeline file", "model
    file" or "nobody".
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
    """Return the document of software by kind of device; `made_at`: when it was looked up, RFC 3339 in UTC."""
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
    """Return the document of a release; `files`: SHA-256 of its other files by path, `tools`: versions of its makers.

    `made_at`: when the software was looked up, RFC 3339 in UTC.
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
