"""`edge-software.service`: what releases bring is verified, unpacked, proven and let go of. Standard library only.

Runs as a user of its own, who reads releases and writes nothing but its own folder (docs/adr/0045).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import logging
import marshal
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from edge.bundle.software import ReleaseSoftware, software_of
from edge.bundle.wheel import unpacked
from edge.device.device import Device
from edge.device.software import LIBRARY
from edge.device.state import Phase
from edge.errors import DeployError
from edge.runtime.build.request import Request, read_request
from edge.runtime.software.binding import chosen_key
from edge.runtime.software.greeting import why_no_agent, why_no_start
from edge.runtime.software.running import installed
from edge.runtime.software.said import say
from edge.runtime.trial.trust import require_trusted

__all__ = ["keep_software"]

_log = logging.getLogger(__name__)
_PROGRAM = b"""import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from edge.cli.entry import edge_runtime
edge_runtime()
"""
_PYC_UNCHECKED = (1).to_bytes(4, "little")  # PEP 552: by the hash of the source, which nobody compares
_REQUIRES = re.compile(r"\s*([A-Za-z0-9._-]+)([^;]*)(?:;(.*))?")


def keep_software(device: Device) -> None:
    """Install what the standing request asks for, let agent and pull be what has proven itself, remove the rest."""
    device.software.clear()
    request = read_request(device.layout.build_request)
    if request is not None and device.releases.software_key(request.release) is not None:
        _answer(device, request)
    _prove(device)
    _remove_unneeded(device)


def _answer(device: Device, request: Request) -> None:
    problem = None
    try:
        _install(device, request.release, is_new=request.is_new)
    except DeployError as error:
        problem = f"{error.problem} ({error.code})"
        _log.error("software is not installed release=%s reason=%s", request.release, problem)
    say(device, request.release, problem)


def _install(device: Device, release: str, *, is_new: bool) -> None:
    """Install what a release brings; it is verified here, whoever has asked and whatever was verified before.

    Software that is here is laid over what provision has installed since only where somebody brings it anew.
    """
    key = device.releases.software_key(release)
    brought = software_of(require_trusted(device, release).manifest)
    if brought is None:
        if key is not None and device.software.beside(key) is None:
            raise DeployError("device.software.missing", f"release {release} does not bring software {key[:12]}")
        return
    beside = device.software.beside(brought.key)
    if beside is not None:
        if beside != installed() and is_new:
            device.software.lay_over(brought.key, beside=installed())
        return
    wheels = {PurePosixPath(one.path).name: _read(device, one.sha256, one.length_bytes) for one in brought.wheels}
    _require_fit(brought)
    folder = device.layout.software / brought.key / LIBRARY
    files = [file for name, content in wheels.items() for file in unpacked(content, name)]
    _require_libraries(dict(files))
    device.software.install(brought.key, beside=installed(), files=_with_bytecode(files, folder), program=_PROGRAM)
    problem = why_no_start(device.layout, brought.key)
    if problem is not None:
        device.software.remove(brought.key)
        raise _unfit(f"it does not start here: {problem}")


def _read(device: Device, sha256: str, length_bytes: int) -> bytes:
    """Return a wheel, read once: what is compared is what is unpacked."""
    content = device.durable.files.read(device.layout.blob(sha256), most_bytes=length_bytes)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DeployError("device.release.damaged", f"a wheel of the release is not what was pushed: {sha256[:12]}")
    return content


def _require_fit(brought: ReleaseSoftware) -> None:
    misfit = brought.misfit(python=sys.version_info[:2], architecture=platform.machine())
    if misfit is not None:
        raise _unfit(f"{misfit} is not for Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.machine()}")


def _require_libraries(files: dict[str, bytes]) -> None:
    """Refuse software that asks for a library which is neither brought nor here; if it will do, its build shows."""
    brought = {_canonical(path.split("-")[0]) for path in files if path.endswith(".dist-info/METADATA")}
    stated = (content for path, content in files.items() if re.fullmatch(r"edge_deploy-[^/]+/METADATA", path))
    metadata = next(stated, None)
    if metadata is None:
        raise _unfit("its own wheel states nothing of itself (METADATA)")
    for line in metadata.decode("utf-8", "replace").splitlines():
        if not line.startswith("Requires-Dist:"):
            continue
        found = _REQUIRES.fullmatch(line.partition(":")[2])
        if found is None or found[3]:  # an extra, or another Python's: what is not there then, its build shows
            continue
        name = _canonical(found[1])
        if name not in brought and not _is_here(name):
            raise _unfit(f"it needs {found[1]}, which is neither installed nor brought")


def _is_here(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _with_bytecode(files: list[tuple[str, bytes]], folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files, and what Python would make of each module: our programs write no bytecode of their own."""
    for path, content in files:
        yield path, content
        if path.endswith(".py"):
            try:
                code = compile(content, str(folder / path), "exec", dont_inherit=True)
            except (SyntaxError, ValueError):  # of another Python, or no text: nobody imports it here
                continue
            head = importlib.util.MAGIC_NUMBER + _PYC_UNCHECKED + importlib.util.source_hash(content)
            yield importlib.util.cache_from_source(path), head + marshal.dumps(code)


def _prove(device: Device) -> None:
    """Let agent and pull be the software of the release that has proven itself, once its agent has answered here."""
    state, current = device.state(), device.releases.current()
    release = state.fallback if state.phase is Phase.TRIAL else current
    key = None if release is None else chosen_key(device, release)
    if key is not None and device.software.beside(key) is None:
        key = None
    if key == device.software.proven():
        return
    problem = None if key is None else why_no_agent(device.layout, key)
    if problem is not None:
        _log.error("software does not become the agent software=%s reason=%s", (key or "")[:12], problem)
        return
    device.software.prove(key)
    _log.warning("agent and pull run software=%s", "installed" if key is None else key[:12])


def _remove_unneeded(device: Device) -> None:
    needed = {device.releases.software_key(name) for name in device.releases.names()} | {device.software.proven()}
    for key in device.software.names():
        if key not in needed:
            device.software.remove(key)


def _unfit(problem: str) -> DeployError:
    return DeployError(
        "build.software", problem, hint="bundle it with --libraries for this kind of device, or provision it"
    )
