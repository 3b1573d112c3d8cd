"""What edge-software says of software that is not to be had, for who builds with it. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping

from edge.device.device import Device
from edge.errors import DeployError
from edge.reading import json_object, read_file
from edge.runtime.software.binding import require_software

__all__ = ["UNTRIED", "require_to_build", "said_of", "say"]

UNTRIED = "untried"
"""In the evidence of `build.software`: nobody has tried to install it yet."""

_SAID = "said.json"
_MOST = 1000


def say(device: Device, problems: Mapping[str, str]) -> None:
    """Note why the software of releases is not installed; that of all others is, or they bring none."""
    path, content = device.layout.software / _SAID, json.dumps(dict(problems)).encode()
    if problems or device.durable.files.length(path) is not None:
        device.durable.put(path, content, mode=0o644)


def require_to_build(device: Device, release: str) -> None:
    """Pass if this process is the software that is to build for a release.

    Raises:
        DeployError: `build.software`, with what edge-software has said of it.
    """
    try:
        require_software(device, release)
    except DeployError as error:
        if not error.code.startswith("device."):
            raise
        problem = said_of(device, release)
        raise DeployError(
            "build.software",
            f"the software of release {release} is not installed: {problem or error.problem}",
            hint="look at: journalctl -u edge-software",
            evidence={UNTRIED: problem is None},
        ) from None


def said_of(device: Device, release: str) -> str | None:
    """Return why the software of a release cannot be installed, as edge-software has found last; None: it has not."""
    try:
        problem = json_object(read_file(device.layout.software / _SAID)).get(release)
    except (OSError, ValueError):
        return None
    return problem[:_MOST] if isinstance(problem, str) else None
