"""The software as wheels, gathered once per kind of device: edge-deploy's own and the lock's, by their SHA-256.

Its own is made of the files that run here: no index and no build tool is asked. It holds what a device needs and no
more (`device_files`). The same files give the same bytes, from a checkout and from where the workstation's wheel is
installed. Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import importlib.metadata
import io
import os
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edge.deploy.provision.facts import Environment, LockedWheel, ProvisionFacts, cache, pycuda_wheel, read_lock
from edge.digest import sha256_of
from edge.errors import DeployError
from edge.version import __version__
from edge.writing import write_whole

__all__ = [
    "OLDEST_GLIBC",
    "OURS",
    "WheelSet",
    "WheelSource",
    "gather_libraries",
    "gather_wheels",
    "own_wheel",
]

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
        problem = f"the device has glibc {_dotted(facts.glibc)}, expected {_dotted(OLDEST_GLIBC)} or newer"
        raise _failed(problem, hint="a newer system is needed there")
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


_ENTRY = "edge.cli.entry"  # of both commands
_AT_HOME = "edge.cli.edge_deploy"  # the workstation's, where the other way leads
_IMPORT = re.compile(rb"^\s*(?:from\s+(edge[\w.]*)\s+import\s+(\([^)]*\)|[^\n#]*)|import\s+(edge[\w.]*))", re.MULTILINE)
_FILES = re.compile(rb'"(edge/[\w./-]+)"')  # of another package, by how their names begin
_QUOTED = re.compile(rb'"(edge\.[\w.]+)"')  # a command that is loaded late, a process of its own, a folder with data


def device_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return those of the package's files, contents by name (`edge/cli/edge_runtime.py`), that a device needs."""
    modules = {_module(name): name for name in files if name.endswith(".py")}
    reached: set[str] = set()
    named: set[str] = set()
    # The kinds of engine are folders that are looked for when one is needed, so no import names them.
    waiting = [_ENTRY, *(module for module in modules if module.startswith("edge.engine."))]
    while waiting:
        module = waiting.pop()
        if module in reached or module == _AT_HOME:
            continue
        reached |= {module}
        waiting += [parent for parent in [module.rpartition(".")[0]] if parent]
        if module in modules:
            waiting += _named_by(files[modules[module]])
            named |= {path.decode() for path in _FILES.findall(files[modules[module]])}
    return {
        name: content
        for name, content in files.items()
        if _is_reached(name, reached, modules) or name.startswith(tuple(named))
    }


def _module(name: str) -> str:
    return ".".join(PurePosixPath(name).with_suffix("").parts).removesuffix(".__init__")


def _named_by(text: bytes) -> Iterator[str]:
    for origin, names, module in _IMPORT.findall(text):
        yield (origin or module).decode()
        yield from (f"{origin.decode()}.{name}" for name in re.findall(r"\w+", names.decode()))
    yield from (quoted.decode() for quoted in _QUOTED.findall(text))


def _is_reached(name: str, reached: set[str], modules: Mapping[str, str]) -> bool:
    """Return whether a file is reached: a module itself, data by its folder or the nearest one above that is named."""
    if name.endswith(".py"):
        return _module(name) in reached
    folders = [".".join(folder.parts) for folder in PurePosixPath(name).parents if folder.parts]
    nearest = next(folder for folder in folders if folder in modules or folder in reached)
    return nearest in reached and (nearest != "edge" or len(folders) == 1)


OURS = f"edge_deploy-{__version__}-py3-none-any.whl"
_INFO = f"edge_deploy-{__version__}.dist-info"
_STATED = ("METADATA", "entry_points.txt")
_ENTRIES = f"{_INFO}/entry_points.txt"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: edge-deploy\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def own_wheel(root: Path | None = None) -> bytes:
    """Return the wheel for devices of the package that runs from `root`: a checkout, or where wheels are installed.

    DeployError `request.wheels`, if it is neither, or an installed file is not as it was installed.
    """
    root = root or Path(__file__).parents[3]
    files = _for_device(dict(_of_checkout(root) if (root / "setup.cfg").is_file() else _of_installation(root)))
    files[f"{_INFO}/WHEEL"] = _WHEEL.encode()
    record = "".join(f"{name},{_record_hash(content)},{len(content)}\n" for name, content in sorted(files.items()))
    files[f"{_INFO}/RECORD"] = f"{record}{_INFO}/RECORD,,\n".encode()
    return _zipped(files)


def _for_device(files: Mapping[str, bytes]) -> dict[str, bytes]:
    package = device_files({name: content for name, content in files.items() if name.startswith("edge/")})
    stated = {name: content for name, content in files.items() if not name.startswith("edge/")}
    lines = stated[_ENTRIES].decode().splitlines(keepends=True)
    kept = [line for line in lines if "=" not in line or line.startswith("edge-runtime ")]
    return {**package, **stated, _ENTRIES: "".join(kept).encode()}


def _zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:  # what compresses differs from machine to machine
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, content)
    return packed.getvalue()


def _record_hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _of_installation(root: Path) -> Iterator[tuple[str, bytes]]:
    found = list(importlib.metadata.distributions(name="edge-deploy", path=[str(root)]))
    if len(found) != 1 or found[0].version != __version__ or not found[0].files:
        raise _not_whole(f"{root} is neither a checkout of edge-deploy {__version__} nor where its wheel was installed")
    for file in found[0].files:
        name = file.as_posix()
        if not _is_ours(PurePosixPath(name)):
            continue
        path = root / name
        content = path.read_bytes() if path.is_file() else b""
        if file.hash is None or f"{file.hash.mode}={file.hash.value}" != _record_hash(content):
            raise _not_whole(f"{path} is not as it was installed")
        yield name, content


def _is_ours(path: PurePosixPath) -> bool:
    if path.parts[0] == _INFO:
        return path.parts[1] == "licenses" or path.name in _STATED
    return path.parts[0] == "edge" and path.suffix != ".pyc"


def _of_checkout(root: Path) -> Iterator[tuple[str, bytes]]:
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg", encoding="utf-8")
    data = {package: text.replace(",", " ").split() for package, text in setup["options.package_data"].items()}
    for folder in sorted(path.parent for path in (root / "edge").rglob("__init__.py")):
        inside = folder.relative_to(root)
        for pattern in ("*.py", *data.get(".".join(inside.parts), ())):
            for path in sorted(folder.glob(pattern)):
                if path.is_file():
                    yield path.relative_to(root).as_posix(), path.read_bytes()
    yield f"{_INFO}/METADATA", _metadata(setup).encode()
    yield _ENTRIES, _entry_points(setup).encode()
    yield f"{_INFO}/licenses/LICENSE", (root / "LICENSE").read_bytes()


def _metadata(setup: configparser.ConfigParser) -> str:
    about, options = setup["metadata"], setup["options"]
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {about['name']}",
        f"Version: {__version__}",
        f"Summary: {about['description']}",
        f"License: {about['license']}",
        f"Requires-Python: {options['python_requires']}",
        *(f"Requires-Dist: {one}" for one in _lines(options["install_requires"])),
    ]
    for extra, requirements in sorted(setup["options.extras_require"].items()):
        lines.append(f"Provides-Extra: {extra}")
        for requirement in _lines(requirements):
            name, _, marker = requirement.partition(";")
            whole = f"({marker.strip()}) and extra == '{extra}'" if marker else f"extra == '{extra}'"
            lines.append(f"Requires-Dist: {name.strip()}; {whole}")
    return "\n".join(lines) + "\n"


def _entry_points(setup: configparser.ConfigParser) -> str:
    groups = setup["options.entry_points"].items()
    return "".join(f"[{group}]\n" + "".join(f"{line}\n" for line in _lines(text)) for group, text in groups)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _not_whole(problem: str) -> DeployError:
    return DeployError("request.wheels", problem, hint="install edge-deploy anew, and run the command again")
