"""The software as wheels, gathered once per kind of device: edge-deploy's own and the lock's, by their SHA-256."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from edge.deploy.provision.facts import Environment, LockedWheel, ProvisionFacts, cache, pycuda_wheel, read_lock
from edge.deploy.provision.own_wheel import OURS, own_wheel
from edge.digest import sha256_of
from edge.errors import DeployError
from edge.version import __version__
from edge.writing import write_whole

__all__ = ["OLDEST_GLIBC", "WheelSet", "WheelSource", "gather_libraries", "gather_wheels"]

OLDEST_GLIBC = (2, 35)
"""Of JetPack 6; all wheels of the lock run with it."""

_DOWNLOAD_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSet:
    """Wheels installed on a device: `paths` and SHA-256 by file name; edge-deploy's own among them, and pip's.

    `requirements` is pip's requirements file: name, version and SHA-256 of each but pip.
    `made_here`: the file names of those that no lock names, because they were made on this side.
    """

    paths: Mapping[str, Path]
    digests: Mapping[str, str]
    requirements: str
    pip: str
    made_here: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the folder under /opt that they are installed in."""
        whole = "".join(f"{name} {digest}\n" for name, digest in sorted(self.digests.items()))
        return f"edge-{__version__}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"

    @property
    def length_bytes(self) -> int:
        return self.missing_bytes(frozenset())

    def missing(self, there: Set[str]) -> list[Path]:
        """Return those that a device lacks which has `there`, by SHA-256."""
        return [path for name, path in self.paths.items() if self.digests[name] not in there]

    def missing_bytes(self, there: Set[str]) -> int:
        return sum(path.stat().st_size for path in self.missing(there))


def gather_wheels(facts: ProvisionFacts) -> WheelSet:
    """Return the wheels for a device, downloaded by SHA-256 unless cached; DeployError `request.wheels`."""
    made = pycuda_wheel(facts)
    wanted = _wanted(facts, made)
    return _whole(_gathered(wanted, facts.environment), wanted, made, facts)


def gather_libraries(environment: Environment) -> Mapping[str, Path]:
    """Return the wheels that such a device needs besides edge-deploy's, by file name; DeployError `request.wheels`."""
    wheels = read_lock().wheels_for(environment, is_jetson=False)
    return _gathered([one for one in wheels if one.use == "serve"], environment)


def _gathered(wanted: Sequence[LockedWheel], environment: Environment) -> dict[str, Path]:
    """Return the wheels by file name; each is what the lock names by its SHA-256."""
    folder = cache() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    missing = [one for one in wanted if not _is_there(folder / one.wheel, one.sha256)]
    if missing:
        _download(missing, folder, environment)
    return {one.wheel: folder / one.wheel for one in wanted}


def _wanted(facts: ProvisionFacts, made: Path | None) -> tuple[LockedWheel, ...]:
    if facts.glibc < OLDEST_GLIBC:
        raise _failed(f"the device has glibc {_dotted(facts.glibc)}, expected {_dotted(OLDEST_GLIBC)} or newer")
    return read_lock().wheels_for(facts.environment, is_jetson=made is not None)


def _whole(
    paths: Mapping[str, Path], wanted: Sequence[LockedWheel], made: Path | None, facts: ProvisionFacts
) -> WheelSet:
    """Return the set, with our own wheel and pycuda's, which is whatever was made here (docs/adr/0008)."""
    whole = {**paths, OURS: _kept_own(), **({} if made is None else {made.name: made})}
    digests = {one.wheel: one.sha256 for one in wanted}
    lines = [f"{one.name}=={one.version} --hash=sha256:{one.sha256}" for one in wanted if one.use != "install"]
    for path in (whole[OURS], *([] if made is None else [made])):
        digests[path.name] = sha256_of(path)
        name, version = path.name.split("-")[:2]
        lines.append(f"{name.replace('_', '-')}=={version} --hash=sha256:{digests[path.name]}")
    return WheelSet(
        paths=whole,
        digests=digests,
        requirements="".join(f"{line}\n" for line in sorted(lines)),
        pip=next(one.wheel for one in wanted if one.use == "install"),
        made_here=() if made is None else (made.name,),
    )


def _kept_own() -> Path:
    content = own_wheel()
    digest = hashlib.sha256(content).hexdigest()
    path = cache() / "wheels" / digest / OURS  # another checkout of this version has one of the same name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not _is_there(path, digest):
        write_whole(path, content, mode=0o600)
    return path


def _download(missing: Sequence[LockedWheel], folder: Path, environment: Environment) -> None:
    lines = [f"{one.name}=={one.version} --hash=sha256:{one.sha256}\n" for one in missing]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as partial:
        asked = Path(partial) / "requirements.txt"
        asked.write_text("".join(lines), encoding="utf-8")
        # By hash and without dependencies: an index can give the very file that the lock names, or nothing.
        arguments = ["download", "--require-hashes", "--no-deps", "--dest", partial, "--requirement", str(asked)]
        _pip([*arguments, *_options(environment)])
        for one in missing:
            came = Path(partial) / one.wheel
            if not _is_there(came, one.sha256):
                raise _failed(f"{one.wheel} did not come as the lock names it")
            os.replace(came, folder / one.wheel)


def _options(environment: Environment) -> list[str]:
    # pip takes each tag by itself: 2_35 does not stand for 2_28.
    tags = [f"manylinux_2_{minor}_{environment.architecture}" for minor in range(17, OLDEST_GLIBC[1] + 1)]
    tags += [f"manylinux2014_{environment.architecture}"]
    options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={_dotted(environment.python)}"]
    return [*options, *(f"--platform={tag}" for tag in reversed(tags))]


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _pip(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False)
    except subprocess.TimeoutExpired:
        raise _failed(f"pip {arguments[0]} has not ended within {_DOWNLOAD_S} s") from None
    if done.returncode:
        raise _failed(f"pip {arguments[0]} failed: {done.stderr.strip()[-600:]}")


def _is_there(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_of(path) == sha256


def _failed(
    problem: str, *, hint: str = "or put the wheels that it asks for into ~/.cache/edge-deploy/wheels"
) -> DeployError:
    return DeployError("request.wheels", problem, hint=hint)


class WheelSource:
    """Remembers the wheels of each kind of device; may be asked by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sets: dict[tuple[object, ...], WheelSet] = {}

    def wheels(self, facts: ProvisionFacts) -> WheelSet:
        key = (facts.environment, facts.glibc, pycuda_wheel(facts))
        with self._lock:
            if key not in self._sets:
                self._sets[key] = gather_wheels(facts)
            return self._sets[key]
