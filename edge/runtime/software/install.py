"""`edge-software.service`: what releases bring is verified, unpacked, kept whole and let go of. Standard library only.

Runs as a user of its own, who reads releases and writes nothing but its own folder (docs/adr/0018).
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
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from edge.bundle.software import PackedFile, ReleaseSoftware, software_of, unpacked
from edge.device.device import Device
from edge.device.software import LIBRARY, Installation
from edge.errors import DeployError
from edge.reading import read_file
from edge.runtime.software.binding import FLAGS, brought_by, installed, say
from edge.runtime.trial.trust import require_known, verify_offer

__all__ = ["keep_software", "why_no_start"]

_DEADLINE_S = 120.0
_TOLD = 300
_SIGN = b"all are there"
_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import edge
if not edge.__file__.startswith(sys.argv[1] + "/"):
    raise ImportError("there is no package edge in it")
for module in pkgutil.walk_packages(edge.__path__, "edge."):
    importlib.import_module(module.name)
print("all are there")
"""


def why_no_start(folder: Path) -> str | None:
    """Return which module of the software in `folder` cannot be imported here, and why; None: all can."""
    command = [sys.executable, *FLAGS, "-c", _IMPORT_ALL, str(folder / LIBRARY)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it cannot be imported: {error}"[:_TOLD]
    if done.returncode == 0 and _SIGN in done.stdout:
        return None
    told = done.stderr.decode("utf-8", "replace").strip().splitlines()
    why = told[-1] if told else f"it ended with {done.returncode} and said nothing"
    return f"it cannot be imported ({why})"[:_TOLD]


_log = logging.getLogger(__name__)
_ROUNDS = 3
_PIECE_BYTES = 1 << 20
_MOST_SOURCE_BYTES = 512 << 10  # of a module that is compiled here: of a longer one, the compiler takes too much memory
_PROGRAM = b"""import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from edge.cli.entry import edge_runtime
edge_runtime()
"""
_PYC_UNCHECKED = (1).to_bytes(4, "little")  # PEP 552: by the hash of the source, which is not compared
_REQUIRES = re.compile(r"\s*([A-Za-z0-9._-]+)([^;]*)(?:;(.*))?")


def keep_software(device: Device) -> None:
    """Have the software of all kept releases whole and here, say what cannot be had, and remove what none brings.

    What comes while this runs is done as well: the next build waits for the end of it.
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
    """Install what a release brings, unless it is here; it is verified here, even if it was verified before.

    Software whose signer counted when it came is installed again also when that one does not count today, as the
    release goes on serving, too (docs/adr/0016). It is the very same: its key is made of its digests.
    """
    brought = None if brought_by(device, release) is None else _verified(device, release)
    if brought is None:
        return
    wanted = Installation(key=brought.key, beside=installed())
    problem = device.software.problem(wanted.name)
    if problem is not None:
        if wanted.name in device.software.names():
            _log.error("software is reinstalled software=%s problem=%s", brought.key[:12], problem)
        _install(device, brought, wanted)  # what is damaged stays until then, and does not run
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
    device.software.install(wanted, _files(device, brought, wanted), program=_PROGRAM, check=_require_whole)
    _log.info("software is installed software=%s version=%s", brought.key[:12], brought.version)


def _files(device: Device, brought: ReleaseSoftware, wanted: Installation) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield what the wheels unpack to and its bytecode; never more of it is in memory than a piece, or a module."""
    folder = device.layout.software / wanted.name / LIBRARY
    for one in brought.wheels:
        with _copied(device, one.sha256, one.length_bytes) as content:
            for file in unpacked(content, PurePosixPath(one.path).name):
                yield from _with_bytecode(file, folder)


def _require_whole(folder: Path) -> None:
    _require_libraries(folder / LIBRARY)
    problem = why_no_start(folder)
    if problem is not None:
        raise _unfit(f"it does not start here: {problem}")


@contextmanager
def _copied(device: Device, sha256: str, length_bytes: int) -> Iterator[BinaryIO]:
    """Give a copy of a wheel that has no name and no other owner: what is compared is what is unpacked."""
    digest, files, blob = hashlib.sha256(), device.durable.files, device.layout.blob(sha256)
    with tempfile.TemporaryFile(dir=device.layout.software) as copy:
        while (offset := copy.tell()) < length_bytes and (piece := files.read_at(blob, offset, _PIECE_BYTES)):
            copy.write(piece)
            digest.update(piece)
        if digest.hexdigest() != sha256:
            raise DeployError("device.release.damaged", f"a wheel of the release is not what was pushed: {sha256[:12]}")
        copy.seek(0)
        yield copy


def _require_fit(brought: ReleaseSoftware) -> None:
    misfit = brought.misfit(python=sys.version_info[:2], architecture=platform.machine())
    if misfit is not None:
        raise _unfit(f"{misfit} is not for Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.machine()}")


def _require_libraries(library: Path) -> None:
    """Refuse software that asks for a library which is neither brought nor here; if it will do, its build shows."""
    stated = sorted(library.glob("*.dist-info/METADATA"))
    brought = {_canonical(path.parent.name.split("-")[0]) for path in stated}
    own = next((path for path in stated if path.parent.name.startswith("edge_deploy-")), None)
    if own is None:
        raise _unfit("its own wheel states nothing of itself (METADATA)")
    for line in read_file(own).decode("utf-8", "replace").splitlines():
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


def _with_bytecode(file: PackedFile, folder: Path) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield the file, and what Python would make of a module: our programs write no bytecode of their own."""
    if not file.path.endswith(".py") or file.length_bytes > _MOST_SOURCE_BYTES:
        yield file.path, file.pieces
        return
    content = b"".join(file.pieces)
    yield file.path, (content,)
    # Of another Python, no text, or no module at all: it is not imported here.
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        code = marshal.dumps(compile(content, str(folder / file.path), "exec", dont_inherit=True))
        head = importlib.util.MAGIC_NUMBER + _PYC_UNCHECKED + importlib.util.source_hash(content)
        yield importlib.util.cache_from_source(file.path), (head, code)


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
