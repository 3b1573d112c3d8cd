"""The software that a release brings: wheels among its files, named together by one key. Standard library only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import PurePosixPath

from edge.bundle.manifest import BundledFile, Manifest, Role
from edge.bundle.wheel import read_wheel_name

__all__ = ["ReleaseSoftware", "software_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSoftware:
    """What a release brings; edge-deploy's own wheel is among the wheels.

    Attributes:
        key: lower-case hex SHA-256 over names and digests of all wheels: the same wheels, the same key.
        version: of edge-deploy.
        wheels: sorted by path.
    """

    key: str
    version: str
    wheels: tuple[BundledFile, ...]

    @property
    def length_bytes(self) -> int:
        """Bytes of the wheels."""
        return sum(one.length_bytes for one in self.wheels)

    def misfit(self, *, python: tuple[int, int], architecture: str) -> str | None:
        """Return the name of a wheel that is for another Python or machine; None: all are for this one."""
        for one in self.wheels:
            named = read_wheel_name(PurePosixPath(one.path).name)
            if named is None or not named.fits(python=python, architecture=architecture):
                return PurePosixPath(one.path).name
        return None


def software_of(manifest: Manifest) -> ReleaseSoftware | None:
    """Return the software that a release brings; None: it brings none."""
    wheels = manifest.files_of(Role.SOFTWARE)
    if not wheels:
        return None
    lines = (f"{PurePosixPath(one.path).name} {one.sha256}\n" for one in wheels)
    own = next(one for one in wheels if one.is_own_software)
    named = read_wheel_name(PurePosixPath(own.path).name)
    key = hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()
    return ReleaseSoftware(key=key, version="" if named is None else named.version, wheels=wheels)
