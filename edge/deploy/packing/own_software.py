"""The software that a release brings along: this edge-deploy as devices have it, and its libraries if asked for."""

from __future__ import annotations

from edge.bundle.manifest import Role
from edge.deploy.packing.contents import Contents
from edge.deploy.provision.lock import Environment
from edge.deploy.provision.own_wheel import OURS, own_wheel
from edge.deploy.provision.wheels import gather_libraries

__all__ = ["add_software"]

_FOLDER = "wheels"


def add_software(contents: Contents, libraries: Environment | None) -> None:
    """Add edge-deploy's own wheel, and the wheels that the lock names for one kind of device; None: none of these.

    Raises:
        DeployError: `request.wheels`, if one cannot be had.
    """
    contents.add(f"{_FOLDER}/{OURS}", Role.SOFTWARE, own_wheel())
    for name, path in (gather_libraries(libraries) if libraries is not None else {}).items():
        contents.add(f"{_FOLDER}/{name}", Role.SOFTWARE, path)
