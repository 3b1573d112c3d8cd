"""Wheels that have metadata only, and the facts of a device that they are for."""

from __future__ import annotations

import zipfile
from pathlib import Path

from edge.deploy.provision.facts import ProvisionFacts


def device_facts(
    python: tuple[int, int] = (3, 10), architecture: str = "aarch64", l4t: str | None = None
) -> ProvisionFacts:
    return ProvisionFacts(
        architecture=architecture,
        python=python,
        glibc=(2, 35),
        systemd=249,
        has_nvmap=l4t is not None,
        l4t=l4t,
        has_key=False,
        has_signer=False,
        credentials=(),
        free_bytes=1 << 40,
    )


def little_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *requires: str,
    tag: str = "py3-none-any",
    extras: tuple[str, ...] = (),
) -> Path:
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-{tag}.whl"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Provides-Extra: {one}" for one in extras]
    lines += [f"Requires-Dist: {one}" for one in requires]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{stem}.dist-info/METADATA", "\n".join(lines) + "\n")
        is_pure = str(tag.endswith("any")).lower()
        archive.writestr(f"{stem}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: {is_pure}\nTag: {tag}\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path
