"""Which files of the package a device needs: what `edge-runtime` can come to import, by the text of the files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

__all__ = ["device_files"]

_ENTRY = "edge.cli.entry"  # of both commands
_AT_HOME = "edge.cli.edge_deploy"  # the workstation's, where the other way leads
_IMPORT = re.compile(rb"^\s*(?:from\s+(edge[\w.]*)\s+import\s+(\([^)]*\)|[^\n#]*)|import\s+(edge[\w.]*))", re.MULTILINE)
_QUOTED = re.compile(rb'"(edge\.[\w.]+)"')  # a command that is loaded late, a process of its own, a folder with data


def device_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return those of the package's files that a device needs.

    Args:
        files: contents by name (`edge/cli/edge_runtime.py`).
    """
    modules = {_module(name): name for name in files if name.endswith(".py")}
    reached: set[str] = set()
    # The kinds of engine are folders that are looked for when one is needed, so no import names them.
    waiting = [_ENTRY, *(module for module in modules if module.startswith("edge.engine."))]
    while waiting:
        module = waiting.pop()
        if module in reached or module == _AT_HOME:
            continue
        reached |= {module}
        waiting += [parent for parent in [module.rpartition(".")[0]] if parent]
        waiting += _named_by(files[modules[module]]) if module in modules else ()
    return {name: content for name, content in files.items() if _is_reached(name, reached, modules)}


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
