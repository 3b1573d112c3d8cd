"""Finds the parts that TensorRT needs, by files. Standard library only, no library is loaded."""

from __future__ import annotations

import grp
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edge.reading import text_of

__all__ = ["LIBRARIES", "SystemCopy", "ThisMachine", "read_machine"]

LIBRARIES = ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings")
"""Import names of the libraries that this kind can run by, the one that is taken first in front."""

_REAL_LIBRARY_OF = {"tensorrt": "tensorrt_bindings", "tensorrt_rtx": "tensorrt_rtx_bindings"}
_GPU_NODES = ("dev/nvidia[0-9]*", "dev/nvgpu/igpu0/ctrl", "dev/nvhost-ctrl-gpu", "dev/nvhost-gpu", "dev/dxg")
_GPU_GROUPS = ("video", "render")
_VERSION = re.compile(r"""^__version__ = ["'](\d[\w.]*)["']""", re.MULTILINE)
_L4T = re.compile(r"#\s*R(\d+)\s*\(release\),\s*REVISION:\s*([\d.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCopy:
    """A TensorRT among the system's packages: its version, and the Python that it is for, as `3.10`."""

    version: str
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisMachine:
    """The parts of this machine that TensorRT needs."""

    architecture: str  # as `aarch64`
    python: str  # as `3.10`
    board: str | None = None  # a Jetson's name; None: it is none
    l4t: str | None = None  # its release, as `36.4.3`; None: no Jetson, or a container that does not show it
    gpus: tuple[str, ...] = ()  # names of discrete GPUs, as the driver tells them
    nodes: tuple[str, ...] = ()  # device files of GPUs
    closed_nodes: tuple[str, ...] = ()  # those that this user may not open
    # versions of the libraries that can be imported, by import name
    libraries: Mapping[str, str] = field(default_factory=dict)
    # what lies among the system's packages, whether this Python sees it or not
    system_copies: tuple[SystemCopy, ...] = ()
    is_venv: bool = False  # whether this Python runs in a virtual environment
    # `video` and `render`, where the machine has them and the user, who is not root, is not in them
    missing_groups: tuple[str, ...] = ()

    @property
    def is_jetson(self) -> bool:
        """Whether it is a Jetson, also where only its L4T release tells."""
        return self.l4t is not None or "jetson" in (self.board or "").lower()

    @property
    def library(self) -> str | None:
        """Import name of the library that is taken; None: there is none."""
        return next((name for name in LIBRARIES if name in self.libraries), None)

    @property
    def gpu(self) -> str | None:
        """Name of the board, or of the first discrete GPU."""
        return self.board if self.is_jetson else next(iter(self.gpus), None)


def read_machine(root: Path = Path("/")) -> ThisMachine:
    """`root` is where its files lie."""
    nodes = sorted(path for pattern in _GPU_NODES for path in root.glob(pattern))
    return ThisMachine(
        architecture=platform.machine(),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        board=text_of(root / "proc/device-tree/model").strip("\0\n ") or None,
        l4t=_l4t(root / "etc/nv_tegra_release"),
        gpus=tuple(_gpus(root / "proc/driver/nvidia/gpus")),
        nodes=tuple(f"/{path.relative_to(root)}" for path in nodes),
        closed_nodes=tuple(f"/{path.relative_to(root)}" for path in nodes if not os.access(path, os.R_OK | os.W_OK)),
        libraries={name: version for name in LIBRARIES if (version := _version(name)) is not None},
        system_copies=tuple(_system_copies(root / "usr/lib")),
        is_venv=sys.prefix != sys.base_prefix,
        missing_groups=() if os.geteuid() == 0 else tuple(_missing_groups()),
    )


def _version(name: str) -> str | None:
    """Return the version that a package states of itself: importing it would take seconds, and memory on the GPU."""
    if not _is_there(name):
        return None
    for package in (name, _REAL_LIBRARY_OF.get(name, name)):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            found = _VERSION.search(text_of(Path(spec.origin)))
            if found:
                return found[1]
    return "unknown"


def _is_there(name: str) -> bool:
    """Return whether a package can be imported; a folder of its name, as an uninstalled one leaves, is none."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def _system_copies(lib: Path) -> Iterator[SystemCopy]:
    for path in sorted(lib.glob("python3*/dist-packages/tensorrt/__init__.py")):
        found = _VERSION.search(text_of(path))
        python = path.parts[-4].removeprefix("python")
        yield SystemCopy(version=found[1] if found else "unknown", python=python)


def _gpus(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*/information")):
        found = re.search(r"^Model:\s*(.+?)\s*$", text_of(path), re.MULTILINE)
        if found:
            yield found[1]


def _l4t(path: Path) -> str | None:
    found = _L4T.search(text_of(path))
    return f"{found[1]}.{found[2]}" if found else None


def _missing_groups() -> Iterator[str]:
    mine = {*os.getgroups(), os.getegid()}
    for name in _GPU_GROUPS:
        try:
            group = grp.getgrnam(name)
        except KeyError:
            continue
        if group.gr_gid not in mine:
            yield name
