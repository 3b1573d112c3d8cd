"""`edge-software.service`: what releases bring is verified, unpacked, kept whole and let go of. Standard library only.

Runs as a user of its own, who reads releases and writes nothing but its own folder (docs/adr/0045).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import logging
import marshal
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from edge.bundle.software import ReleaseSoftware, software_of
from edge.bundle.wheel import unpacked
from edge.device.device import Device
from edge.device.disk import typed
from edge.device.software import LIBRARY, Installation
from edge.errors import DeployError
from edge.runtime.software.binding import brought_by
from edge.runtime.software.running import installed
from edge.runtime.software.said import say
from edge.runtime.software.start import why_no_start
from edge.runtime.trial.trust import require_known, verify_offer

__all__ = ["keep_software"]

_log = logging.getLogger(__name__)
_ROUNDS = 3
_PROGRAM = b"""import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from edge.cli.entry import edge_runtime
edge_runtime()
"""
_PYC_UNCHECKED = (1).to_bytes(4, "little")  # PEP 552: by the hash of the source, which nobody compares
_REQUIRES = re.compile(r"\s*([A-Za-z0-9._-]+)([^;]*)(?:;(.*))?")


def keep_software(device: Device) -> None:
    """Have the software of all kept releases whole and here, say what cannot be had, and remove what none brings.

    What comes while this runs is done as well: whoever builds next was told to wait for the end of it.
    """
    _try(device.software.clear)
    for _ in range(_ROUNDS):
        found = device.releases.names()
        problems = {release: _problem(device, release) for release in found}
        if device.releases.names() == found:
            break
    _try(lambda: say(device, {release: problem for release, problem in problems.items() if problem is not None}))
    _try(lambda: _remove_unneeded(device))


def _try(part: Callable[[], None]) -> None:
    """Do one part; what it cannot do stands in the way of no other."""
    try:
        part()
    except DeployError as error:
        _log.error("software cannot be kept reason=%s", error)


def _problem(device: Device, release: str) -> str | None:
    try:
        _require_installed(device, release)
    except DeployError as error:
        _log.error("software is not installed release=%s code=%s problem=%s", release, error.code, error.problem)
        return f"{error.problem} ({error.code})"
    except Exception as error:  # the border: what one release brings stands in the way of no other
        _log.exception("software is not installed release=%s", release)
        return f"internal error: {type(error).__name__}: {error}; report it"
    return None


def _require_installed(device: Device, release: str) -> None:
    """Install what a release brings, unless it is here; it is verified here, whoever has verified it before.

    Software whose signer counted when it came is installed again also when that one does not count today, as the
    release goes on serving, too (docs/adr/0018). It is the very same: its key is made of its digests.
    """
    brought = None if brought_by(device, release) is None else _verified(device, release)
    if brought is None:
        return
    wanted = Installation(key=brought.key, beside=installed())
    problem = device.software.problem(wanted.name)
    if problem is not None:
        if wanted.name in device.software.names():
            _log.error("software is installed anew software=%s problem=%s", brought.key[:12], problem)
        _install(device, brought, wanted)  # what is damaged stays until then, and nobody runs it
    if brought.key not in device.software.vouched():
        device.software.vouch(brought.key)


def _verified(device: Device, release: str) -> ReleaseSoftware | None:
    """Return what a release brings that may be installed: vouched for, or of a signer who counts now.

    A key that has run out since does not do for what was never here, unlike for a release that serves.
    """
    brought = software_of(require_known(device, release).manifest)
    if brought is None or brought.key in device.software.vouched():
        return brought
    content, signature = device.releases.manifest(release), device.releases.signature(release)
    return software_of(verify_offer(device, content, signature).manifest)


def _install(device: Device, brought: ReleaseSoftware, wanted: Installation) -> None:
    _require_fit(brought)
    wheels = {PurePosixPath(one.path).name: _read(device, one.sha256, one.length_bytes) for one in brought.wheels}
    files = [file for name, content in wheels.items() for file in unpacked(content, name)]
    _require_libraries(dict(files))
    folder = device.layout.software / wanted.name / LIBRARY
    device.software.install(wanted, _with_bytecode(files, folder), program=_PROGRAM, check=_require_start)
    _log.info("software is installed software=%s version=%s", brought.key[:12], brought.version)


def _require_start(folder: Path) -> None:
    problem = why_no_start(folder)
    if problem is not None:
        raise _unfit(f"it does not start here: {problem}")


@typed
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
            except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
                # Of another Python, no text, or no module at all: nobody imports it here.
                continue
            head = importlib.util.MAGIC_NUMBER + _PYC_UNCHECKED + importlib.util.source_hash(content)
            yield importlib.util.cache_from_source(path), head + marshal.dumps(code)


def _remove_unneeded(device: Device) -> None:
    """Remove what no kept release brings, and what lies over an installed edge-deploy that is gone.

    Software over another one than runs now stays: a service that was started before may still load from it.
    """
    if not device.durable.files.is_dir(device.layout.releases):
        return
    # A manifest that cannot be read ends this: what is removed or forgotten here may not be had again.
    needed = {brought.key for release in device.releases.names() if (brought := brought_by(device, release))}
    wanted = {Installation(key=key, beside=installed()).name for key in needed}
    for name in device.software.names():
        origin = device.software.origin(name)
        if name not in wanted and (origin is None or origin.key not in needed or not os.path.isdir(origin.beside)):
            device.software.remove(name)
    for key in device.software.vouched():
        if key not in needed:
            device.software.forget(key)


def _unfit(problem: str) -> DeployError:
    return DeployError(
        "build.software", problem, hint="bundle it with --libraries for this kind of device, or provision it"
    )
