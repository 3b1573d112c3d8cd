"""The software as wheels for a device's architecture and Python, gathered on the workstation and kept in its cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge.deploy.provision.facts import ProvisionFacts
from edge.deploy.provision.jetson import EXTRA, cache, no_pycuda, pycuda_folder, pycuda_wheel
from edge.deploy.provision.requirements import unmet_requirements
from edge.errors import DeployError
from edge.version import __version__

__all__ = ["WheelSet", "gather_wheels", "read_wheels"]

_OURS = "edge_deploy-"
_LOCK = "wheels.json"  # what was gathered, so that the next provision takes the same
_DOWNLOAD_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSet:
    """Wheels in one folder, SHA-256 by file name; with edge-deploy's own and with pip's, which installs the others.

    `extra` is the one of edge-deploy that is installed with them, None where none is.
    """

    folder: Path
    digests: Mapping[str, str]
    extra: str | None = None

    @property
    def name(self) -> str:
        """The name of the folder under /opt that they are installed in."""
        whole = "".join(f"{name} {digest}\n" for name, digest in sorted(self.digests.items()))
        return f"edge-{self.version}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"

    @property
    def version(self) -> str:
        """The version of edge-deploy among them."""
        return self._one(_OURS).split("-")[1]

    @property
    def requirement(self) -> str:
        """What pip is told to install."""
        return f"edge-deploy{_brackets(self.extra)}=={self.version}"

    @property
    def pip(self) -> str:
        """The name of pip's wheel."""
        return self._one("pip-")

    @property
    def length_bytes(self) -> int:
        """Bytes of them all."""
        return sum((self.folder / name).stat().st_size for name in self.digests)

    def _one(self, prefix: str) -> str:
        return next(name for name in sorted(self.digests) if name.startswith(prefix))


def read_wheels(folder: Path, facts: ProvisionFacts, *, extra: str | None = None) -> WheelSet:
    """Return the wheels for a device that somebody has put in a folder.

    Raises:
        DeployError: `request.wheels`, if edge-deploy's own, pip's or one that these need is not among them;
            `request.pycuda`, if that is pycuda's.
    """
    paths = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    for prefix in (_OURS, "pip-"):
        if sum(path.name.startswith(prefix) for path in paths) != 1:
            raise _failed(f"{folder} holds {len(paths)} wheels, expected exactly one {prefix}*.whl among them")
    unmet = unmet_requirements(paths, facts, extra=extra)
    if any(one.startswith("pycuda") for one in unmet):
        raise no_pycuda(facts, folder)
    if unmet:
        raise _failed(f"{folder} lacks wheels that a device with {_python(facts)} needs: {', '.join(unmet)}")
    return WheelSet(folder=folder, digests={path.name: _sha256(path) for path in paths}, extra=extra)


def gather_wheels(facts: ProvisionFacts, *, extra: str | None = None) -> WheelSet:
    """Return the wheels for a device, downloaded once per version of edge-deploy, architecture, Python and extra.

    Raises:
        DeployError: `request.wheels`, if one cannot be built or downloaded; `request.pycuda`, if a Jetson's has not
            been made.
    """
    made = pycuda_wheel(facts) if extra == EXTRA else None
    python, glibc = (".".join(map(str, version)) for version in (facts.python, facts.glibc))
    words = (__version__, facts.architecture, python, f"glibc{glibc}", *([extra] if extra else ()))
    folder = cache() / "wheels" / "-".join(words)
    folder.mkdir(parents=True, exist_ok=True)
    ours = _own_wheel(folder)
    lock = folder / _LOCK
    digests = json.loads(lock.read_text(encoding="utf-8")) if lock.is_file() else {}
    if any(not (folder / name).is_file() or _sha256(folder / name) != digest for name, digest in digests.items()):
        lock.unlink()
        raise _failed(f"{folder} is not as it was when it was gathered; run the command again to gather it anew")
    is_old = made is not None and digests.get(made.name) != _sha256(made)
    if not digests or is_old or unmet_requirements([ours, *(folder / name for name in digests)], facts, extra=extra):
        digests = {path.name: _sha256(path) for path in _download(ours, folder, facts, extra)}
        partial = lock.with_suffix(".partial")
        partial.write_text(json.dumps(digests, indent=1), encoding="utf-8")
        partial.replace(lock)
    return WheelSet(folder=folder, digests={**digests, ours.name: _sha256(ours)}, extra=extra)


def _download(ours: Path, folder: Path, facts: ProvisionFacts, extra: str | None) -> list[Path]:
    """Return the wheels that ours needs there; what only the device needs, pip does not see: that is asked for."""
    wanted = [f"{ours}{_brackets(extra)}", "pip"]
    while True:
        for old in folder.glob("*.whl"):
            if old != ours:
                old.unlink()
        _pip(["download", "--dest", str(folder), *_options(facts), *wanted])
        wheels = sorted(folder.glob("*.whl"))
        unmet = unmet_requirements(wheels, facts, extra=extra)
        if not unmet:
            return [wheel for wheel in wheels if wheel != ours]
        if set(unmet) <= set(wanted):
            raise _failed(f"no wheels were found for {_python(facts)} that go together: {', '.join(unmet)}")
        wanted += unmet


def _python(facts: ProvisionFacts) -> str:
    return f"Python {facts.python[0]}.{facts.python[1]} on {facts.architecture}"


def _options(facts: ProvisionFacts) -> list[str]:
    # pip takes each tag by itself: 2_35 does not stand for 2_28.
    tags = [f"manylinux_2_{minor}_{facts.architecture}" for minor in range(17, facts.glibc[1] + 1)]
    tags += [f"manylinux2014_{facts.architecture}"]
    options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={facts.python[0]}.{facts.python[1]}"]
    # What was made here is for no other machine's glibc, and says so in its tag.
    tags = [f"linux_{facts.architecture}", *tags]
    return [*options, f"--find-links={pycuda_folder()}", *(f"--platform={tag}" for tag in reversed(tags))]


def _brackets(extra: str | None) -> str:
    return "" if extra is None else f"[{extra}]"


def _own_wheel(folder: Path) -> Path:
    """Return our wheel: of the source tree that this runs from, or of the installed version."""
    root = Path(__file__).parents[3]
    is_tree = (root / "setup.cfg").is_file()
    kept = folder / "own" / (_tree_sha256(root)[:16] if is_tree else __version__)
    if not kept.is_dir():
        partial = kept.with_suffix(".partial")
        shutil.rmtree(kept.parent, ignore_errors=True)
        partial.mkdir(parents=True)
        if is_tree:
            _build(root, partial)
        else:
            _pip(["download", "--no-deps", "--dest", str(partial), f"edge-deploy=={__version__}"])
        partial.rename(kept)
    built = next(kept.glob(f"{_OURS}*.whl"))
    for old in folder.glob(f"{_OURS}*.whl"):
        old.unlink()
    return Path(shutil.copy2(built, folder / built.name))


def _build(root: Path, target: Path) -> None:
    source = target / "source"  # a copy, because a build writes beside what it builds
    for path in _tree(root):
        copy = source / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    _pip(["wheel", "--no-deps", "--wheel-dir", str(target), str(source)])
    shutil.rmtree(source)


def _tree(root: Path) -> list[Path]:
    """Return the files that a wheel of ours is made of."""
    inner = [path for name in ("edge", "pipelines", "systemd") for path in (root / name).rglob("*") if path.is_file()]
    outer = [root / name for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")]
    return sorted(path for path in (*inner, *outer) if "__pycache__" not in path.parts)


def _tree_sha256(root: Path) -> str:
    whole = "".join(f"{path.relative_to(root)} {_sha256(path)}\n" for path in _tree(root))
    return hashlib.sha256(whole.encode()).hexdigest()


def _pip(arguments: list[str]) -> None:
    # The same source gives the same bytes: without this the wheel carries the time of its build.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=_DOWNLOAD_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise _failed(f"pip {arguments[0]} has not ended within {_DOWNLOAD_S} s") from None
    if done.returncode:
        raise _failed(f"pip {arguments[0]} failed: {done.stderr.strip()[-600:]}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()


def _failed(problem: str) -> DeployError:
    return DeployError("request.wheels", problem, hint="or give a folder of wheels by --wheels")
