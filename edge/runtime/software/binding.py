"""Which software a release on this device runs with, and whether it is here. Standard library only."""

from __future__ import annotations

from edge.bundle.manifest import Manifest, decode_manifest
from edge.bundle.software import ReleaseSoftware, software_of
from edge.device.device import Device
from edge.device.software import Installation
from edge.errors import DeployError
from edge.runtime.software.running import installed, installed_version, running
from edge.runtime.trial.intact import require_intact

__all__ = [
    "brought_by",
    "installation_of",
    "is_this",
    "problem_of_software",
    "require_software",
    "told_of_change",
]

_AGAIN = "it is installed again by itself before the next build; look at: journalctl -u edge-software"


def brought_by(device: Device, release: str) -> ReleaseSoftware | None:
    """Return the software that a release brings; None: none, so that it runs with what provision installed.

    Raises:
        DeployError: `verify.manifest.*`, `device.*`, if its manifest cannot be read.
    """
    return software_of(decode_manifest(device.releases.manifest(release)))


def installation_of(software: ReleaseSoftware | None) -> Installation | None:
    """Return where software is installed on this device, here or not: over the edge-deploy that this process is of."""
    return None if software is None else Installation(key=software.key, beside=installed())


def is_this(device: Device, release: str) -> bool:
    """Return whether this process is the software that a release runs with: then it knows what an engine depends on."""
    wanted = installation_of(brought_by(device, release))
    return (None if wanted is None else wanted.name) == running()


def require_software(device: Device, release: str) -> None:
    """Pass if this process is the software that a release runs with.

    Raises:
        DeployError: `device.software.missing`.
    """
    if is_this(device, release):
        return
    problem = problem_of_software(device, release)
    if problem is not None:
        raise problem
    raise DeployError(
        "device.software.missing",
        f"release {release} runs with {_named(brought_by(device, release))}, and this process is another",
        hint="start it again",
    )


def problem_of_software(device: Device, release: str) -> DeployError | None:
    """Return why the software that a release brings cannot run it now; None: it can, or it brings none.

    Raises:
        DeployError: if it cannot be installed again either: `device.release.missing`; `device.release.damaged` with the
            digest of that wheel.
    """
    brought = brought_by(device, release)
    wanted = installation_of(brought)
    if brought is None or wanted is None or wanted.name == running():
        return None
    problem = device.software.problem(wanted.name)
    if problem is None:
        return None
    require_intact(device, release, brought.wheels)
    return DeployError("device.software.missing", f"release {release}: {_named(brought)} {problem}", hint=_AGAIN)


def told_of_change(device: Device, offered: Manifest) -> str | None:
    """Return that a release which is offered is run by another edge-deploy than the one that serves, in words.

    None where that is not so, or nothing serves, or what serves cannot be read.
    """
    current, after = device.releases.current(), software_of(offered)
    try:
        before = None if current is None else brought_by(device, current)
    except DeployError:
        return None
    if current is None or (before and before.key) == (after and after.key):
        return None
    return f"it will be run by {_named(after)}; what serves is run by {_named(before)}"


def _named(brought: ReleaseSoftware | None) -> str:
    if brought is None:
        version = installed_version()
        return "what provision has installed" + (f" ({version})" if version else "")
    return f"software {brought.version} ({brought.key[:12]})"
