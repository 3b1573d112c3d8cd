"""Which software a release on this device runs with, which one this process is, and why one is not to be had.

Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from edge.bundle.manifest import Manifest, decode_manifest
from edge.bundle.software import ReleaseSoftware, software_of
from edge.device.device import Device
from edge.device.software import LIBRARY, Installation
from edge.errors import DeployError
from edge.reading import json_object, read_file
from edge.runtime.trial.intact import require_intact
from edge.version import __version__

__all__ = [
    "FLAGS",
    "UNTRIED",
    "brought_by",
    "installation_of",
    "installed",
    "is_this",
    "module_command",
    "problem_of_software",
    "require_software",
    "require_to_build",
    "running",
    "said_of",
    "say",
    "told_of_change",
]

FLAGS = ("-IBXfaulthandler",) if sys.flags.isolated else ()
"""As deaf to its surroundings as this process is; a child does not inherit that."""
_HOME = Path(__file__).parents[3]  # the folder on Python's path that this package was found in
_MODULE = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def running(home: Path = _HOME) -> str | None:
    """Return the name of the installation that this process is; None: it is what provision installed."""
    is_one = home.name == LIBRARY and len(home.parent.name) == 64 and home.parent.parent.name == "edge-software"
    return home.parent.name if is_one else None


def installed() -> str:
    """Return the folder of the installed edge-deploy that this process stands on, whatever is laid over it."""
    return os.path.realpath(sys.prefix)


def module_command(module: str) -> tuple[str, ...]:
    """Return the command that runs a module of the very package that runs here."""
    return (sys.executable, *FLAGS, "-c", _MODULE, str(_HOME), module)


_AGAIN = "it is installed again by itself before the next build; look at: journalctl -u edge-software"


def brought_by(device: Device, release: str) -> ReleaseSoftware | None:
    """Return None where it runs with what provision installed. Raises `DeployError` `verify.manifest.*`, `device.*`."""
    return software_of(decode_manifest(device.releases.manifest(release)))


def installation_of(software: ReleaseSoftware | None) -> Installation | None:
    """Return where software is installed on this device, here or not: over the edge-deploy that this process is of."""
    return None if software is None else Installation(key=software.key, beside=installed())


def is_this(device: Device, release: str) -> bool:
    """Return whether this process is the software that a release runs with: then it knows what an engine depends on."""
    wanted = installation_of(brought_by(device, release))
    return (None if wanted is None else wanted.name) == running()


def require_software(device: Device, release: str) -> None:
    """DeployError `device.software.missing` unless this process is the software that the release runs with."""
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
    Raises `DeployError` if it cannot be installed again either: `device.release.missing`; `device.release.damaged` with
    the digest of that wheel.
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
        return "what provision has installed" + (f" ({__version__})" if running() is None else "")
    return f"software {brought.version} ({brought.key[:12]})"


UNTRIED = "untried"
"""In the evidence of `build.software`: it was not tried to install it yet."""
_SAID = "said.json"
_MOST = 1000


def say(device: Device, problems: Mapping[str, str]) -> None:
    """Note why the software of releases is not installed; that of all others is, or they bring none."""
    path, content = device.layout.software / _SAID, json.dumps(dict(problems)).encode()
    if problems or device.durable.files.length(path) is not None:
        device.durable.put(path, content, mode=0o644)


def require_to_build(device: Device, release: str) -> None:
    """Pass if this process is the software that is to build for a release.
    Raises `DeployError` `build.software`, with what edge-software has said of it.
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
