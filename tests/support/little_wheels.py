"""Wheels that have metadata only, a lock that names them, and the facts of a device that they are for."""

from __future__ import annotations

import ensurepip
import hashlib
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path

from edge.deploy.provision.facts import ProvisionFacts
from edge.deploy.provision.lock import ENVIRONMENTS, Lock, LockedWheel


def real_pip(folder: Path) -> Path:
    """Copy the pip that this Python brings into a folder: Debian keeps it in a place of its own."""
    places = (Path("/usr/share/python-wheels"), Path(ensurepip.__file__).parent / "_bundled")
    pip = next(one for place in places for one in place.glob("pip-*.whl"))
    return Path(shutil.copy2(pip, folder / pip.name))


def device_facts(
    python: tuple[int, int] = (3, 10),
    architecture: str = "aarch64",
    l4t: str | None = None,
    glibc: tuple[int, int] = (2, 35),
) -> ProvisionFacts:
    return ProvisionFacts(
        architecture=architecture,
        python=python,
        glibc=glibc,
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


def little_lock(wheels: Iterable[Path], *, jetson: tuple[str, ...] = ()) -> Lock:
    """Return a lock with these wheels for every device; those named in `jetson` for Jetsons alone."""
    locked = []
    for wheel in sorted(wheels):
        name, version = wheel.name.split("-")[:2]
        use = "install" if name == "pip" else "jetson" if name in jetson else "serve"
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        locked.append(
            LockedWheel(name=name.replace("_", "-"), version=version, wheel=wheel.name, sha256=sha256, use=use)
        )
    return Lock(made_at="2026-11-22T00:00:00Z", environments=dict.fromkeys(ENVIRONMENTS, tuple(locked)))
