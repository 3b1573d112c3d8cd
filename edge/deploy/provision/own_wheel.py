"""edge-deploy's own wheel for devices, made of the files that run here: no index and no build tool is asked.

It holds what a device needs and no more (`device_files`). The same files give the same bytes,
from a checkout and from where the workstation's wheel is installed.
Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import importlib.metadata
import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from edge.errors import DeployError
from edge.version import __version__

__all__ = ["OURS", "own_wheel"]

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
        raise _failed(f"{root} is neither a checkout of edge-deploy {__version__} nor where its wheel was installed")
    for file in found[0].files:
        name = file.as_posix()
        if not _is_ours(PurePosixPath(name)):
            continue
        path = root / name
        content = path.read_bytes() if path.is_file() else b""
        if file.hash is None or f"{file.hash.mode}={file.hash.value}" != _record_hash(content):
            raise _failed(f"{path} is not as it was installed")
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


def _failed(problem: str) -> DeployError:
    return DeployError("request.wheels", problem, hint="install edge-deploy anew, and run the command again")
