"""What the builder said last (`build-result.json`); it is another process, so nothing of it is taken unread."""

from __future__ import annotations

from typing import Any

from edge.device.device import Device
from edge.errors import DeployError
from edge.reading import json_object
from edge.runtime.software.binding import problem_of_software
from edge.wire.codec import Misfit, decode
from edge.wire.peer import REVISION
from edge.wire.release import BuildAnswer

__all__ = ["built_of", "is_built", "read_build_result", "seconds_of"]

_MAX_RESULT_BYTES = 64 * 1024
_MAX_BUILD_S = 1e9
_TOLD = ("key", "seconds", "golden", "engine", "precision", "report")


def read_build_result(device: Device) -> dict[str, Any]:
    """Return it; empty where there is none that can be read."""
    path, files = device.layout.build_result, device.durable.files
    try:
        return json_object(files.read(path, most_bytes=_MAX_RESULT_BYTES))
    except (ValueError, OSError):
        return {}


def seconds_of(result: dict[str, Any]) -> float | None:
    """Return how long a build took; None where the result does not say."""
    seconds = result.get("seconds")
    if isinstance(seconds, (int, float)) and 0 <= seconds < _MAX_BUILD_S:
        return float(seconds)
    return None


def is_built(device: Device, release: str) -> bool:
    """Return whether a release is here with its engine and with the software that it brings: it could serve."""
    if not device.releases.is_ready(release):
        return False
    try:
        return problem_of_software(device, release) is None
    except DeployError:
        return False


def built_of(result: dict[str, Any]) -> BuildAnswer:
    """Return the answer that a result stands for.

    Raises:
        DeployError: `build.failed`, if it is not what a builder writes.
    """
    told = {name: result[name] for name in _TOLD if name in result}
    try:
        return decode(BuildAnswer, told, where="build-result.json", revision=0, ours=REVISION)
    except Misfit as misfit:
        raise DeployError(
            "build.failed",
            f"the builder left a result that cannot be read: {misfit}",
            hint="push again; look at: journalctl -u edge-build",
        ) from None
