"""Which software a release on this device runs with, which one this process is, and why one is not to be had.

The first thing that a process of `edge-runtime` does is to become the software that its command is for: what the
release in question brings, or what is installed. Standard library only.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from edge.bundle.manifest import BundledFile, Manifest, decode_manifest
from edge.bundle.software import ReleaseSoftware, software_of
from edge.device.device import Device
from edge.device.layout import Layout
from edge.device.releases import locate_release
from edge.device.software import LIBRARY, PROGRAM, Installation
from edge.errors import DeployError
from edge.reading import json_object, read_file
from edge.version import __version__

__all__ = [
    "FLAGS",
    "HANDED",
    "UNTRIED",
    "brought_by",
    "damaged",
    "hand_over",
    "installation_of",
    "installed",
    "is_this",
    "module_command",
    "problem_of_software",
    "program_for",
    "require_intact",
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


def require_intact(device: Device, release: str, files: Iterable[BundledFile]) -> None:
    """Pass if the store has each of these files of a release, with the content that it was pushed with.
    Raises `DeployError` `device.release.missing`; `device.release.damaged` with the blob's digest in its evidence.
    """
    for one in files:
        if not device.store.has(one.sha256):
            raise DeployError(
                "device.release.missing", f"release {release}: {one.path} is not here", hint="push it again"
            )
        if not device.store.verify(one.sha256):
            raise damaged(release, one.path, one.sha256, "is not what was pushed")


def damaged(release: str, path: str, sha256: str, what: str) -> DeployError:
    """Return the error of a file that is not what it was; `put_aside` takes the blob out of the store by it."""
    return DeployError(
        "device.release.damaged",
        f"release {release}: {path} {what}",
        hint="push it again: what is damaged is fetched anew",
        evidence={"path": path, "sha256": sha256},
    )


HANDED = "EDGE_SOFTWARE"
"""Set for software that took over: if it has lost a part of itself, it does not ask for itself again."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def program_of(layout: Layout, wanted: Installation) -> str | None:
    """Return the program of an installation that is here, and that only edge-software could have written."""
    folder = layout.software / wanted.name
    try:
        states = [os.lstat(layout.software), os.lstat(folder)]
    except OSError:
        return None
    owner = states[0].st_uid
    is_of_owner = all(stat.S_ISDIR(one.st_mode) and one.st_uid == owner for one in states)
    if not is_of_owner or any(one.st_mode & _OTHERS_WRITE for one in states):
        return None
    if os.geteuid() == 0 and owner != 0:
        return None
    program = folder / PROGRAM
    return str(program) if program.is_file() and (folder / LIBRARY).is_dir() else None


def value_of(arguments: Sequence[str], option: str) -> str | None:
    """Return None where the option is not given."""
    for index, word in enumerate(arguments):
        if word == option and index + 1 < len(arguments):
            return arguments[index + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def hand_over(arguments: Sequence[str]) -> None:
    """Become the software that a command is for; return where that is this one, or where that one is not here.

    `run` and `build` are the software of their release; all others are what provision installed. So is whatever root
    types: root runs nothing that another user has unpacked.
    """
    if HANDED in os.environ or running() is not None:
        return
    program = program_for(arguments)
    if program is not None:
        environment = {**os.environ, HANDED: os.path.basename(os.path.dirname(program))}
        os.execve(sys.executable, [sys.executable, *FLAGS, program, *arguments], environment)


def program_for(arguments: Sequence[str]) -> str | None:
    """Return what Python is to run for a command line; None: what is installed."""
    command = next((word for word in arguments if not word.startswith("-")), None)
    found = None
    if command == "run" and (path := value_of(arguments, "--release")):
        found = locate_release(Path(path))
    elif command == "build" and (path := value_of(arguments, "--request")):
        found = _asked_for(Path(path))
    if found is None:
        return None
    layout, release = found
    wanted = _wanted(layout, release)
    return None if wanted is None else program_of(layout, wanted)


def _asked_for(path: Path) -> tuple[Layout, str] | None:
    from edge.runtime.build.request import read_request

    path = Path(os.path.abspath(path))
    layout = Layout(path.parents[3]) if len(path.parents) > 3 else None
    if layout is None or layout.build_request != path:
        return None
    try:
        request = read_request(path)
    except DeployError:
        return None  # its next reader says what is wrong with it
    return None if request is None else (layout, request.release)


def _wanted(layout: Layout, release: str) -> Installation | None:
    from edge.runtime.trial.trust import is_known

    device = Device(layout)
    try:
        # The service says whether it may serve at all; none of its software runs to say so.
        wanted = installation_of(brought_by(device, release)) if is_known(device, release) else None
    except DeployError:
        return None
    is_whole = wanted is not None and device.software.problem(wanted.name) is None
    return wanted if is_whole else None
