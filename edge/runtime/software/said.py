"""What edge-software says of the last installation, for who builds with it. Standard library only."""

from __future__ import annotations

import json

from edge.device.device import Device
from edge.errors import DeployError
from edge.reading import json_object, read_file
from edge.runtime.software.binding import require_software

__all__ = ["require_to_build", "say"]

_SAID = "said.json"
_MOST = 1000


def say(device: Device, release: str, problem: str | None) -> None:
    """Note why the software of a release is not installed; None: it is, or there is none."""
    said = json.dumps({"release": release, "problem": problem}).encode()
    device.durable.put(device.layout.software / _SAID, said, mode=0o644)


def require_to_build(device: Device, release: str) -> None:
    """Pass if this process is the software that is to build for a release.

    Raises:
        DeployError: `build.software`, with what edge-software has said of it.
    """
    try:
        require_software(device, release)
    except DeployError as error:
        problem = _said_of(device, release) or error.problem
        raise DeployError(
            "build.software",
            f"the software of release {release} is not installed: {problem}",
            hint="look at: journalctl -u edge-software",
        ) from None


def _said_of(device: Device, release: str) -> str | None:
    try:
        said = json_object(read_file(device.layout.software / _SAID))
    except (OSError, ValueError):
        return None
    problem = said.get("problem")
    return problem[:_MOST] if said.get("release") == release and isinstance(problem, str) else None
