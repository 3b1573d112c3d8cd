"""The software of a device in an SBOM: one component for each kind of device, and one for each wheel on it.

Source: ECMA-424 (CycloneDX 1.6); package URLs: https://github.com/package-url/purl-spec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

__all__ = ["Library", "device_components", "device_dependencies", "licenses", "supplier"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One package as it is on a device.

    Attributes:
        file: of the wheel; None: no wheel of it is known here.
        sha256: of that file; None: not known here, which `why_no_hash` explains.
        source_sha256: of the source that a wheel without a known hash is compiled from.
        requires: names of other libraries of the same device.
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
    """Return who needs whom."""
    needs: dict[str, set[str]] = {}
    for name, libraries in devices.items():
        refs = {library.name: library.ref for library in libraries}
        needs[f"device:{name}"] = set(refs.values())
        for library in libraries:
            mine = {refs[other] for other in library.requires if other in refs}
            needs.setdefault(library.ref, set()).update(mine)
    return [{"ref": ref, "dependsOn": sorted(others)} for ref, others in sorted(needs.items())]


def supplier(name: str | None) -> dict[str, Any]:
    """Return the key that says who supplies a component, as it says itself; empty where it does not."""
    return {} if name is None else {"supplier": {"name": name}}


def licenses(text: str | None) -> dict[str, Any]:
    """Return the key with the license in the words of who supplies it; empty where there are none."""
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
