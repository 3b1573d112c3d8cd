"""What a device measures about itself, read from files: nothing is imported, started or asked over the network."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge.device.counters import read_counters
from edge.device.disk import typed
from edge.device.files import RealFiles
from edge.device.layout import Layout
from edge.device.settings import read_settings
from edge.errors import DeployError
from edge.reading import read_file

__all__ = ["Facts", "facts_as_json", "gather_facts", "newest_accepted"]

_L4T = re.compile(r"#\s*R(\d+)\s*\(release\),\s*REVISION:\s*([\d.]+)")
_JETPACK_OF_L4T = {"32": "4", "35": "5", "36": "6", "38": "7"}
_MAX_BYTES = 64 << 20  # the list of all packages of a system has some megabytes
_VERSION = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a push has to know of a device; None: not there or not known.

    `clock_floor` is the earliest time that it can be, whatever the clock says (RFC 3339 in UTC).
    """

    name: str
    compatible: tuple[str, ...]
    architecture: str
    python: str
    l4t: str | None
    jetpack: str | None
    tensorrt: str | None
    memory_bytes: int
    memory_available_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    inodes_free: int
    is_one_file_system: bool
    clock_floor: str | None


@typed
def gather_facts(layout: Layout) -> Facts:
    """Return the facts of the device whose root is `layout.root`.

    Raises:
        DeployError: `device.settings`, `device.disk.*`.
    """
    settings = read_settings(layout.device_toml)
    disk = os.statvfs(layout.var)
    memory = _memory(layout.root / "proc/meminfo")
    l4t = _l4t(layout.root / "etc/nv_tegra_release")
    return Facts(
        name=settings.name,
        compatible=settings.compatible,
        architecture=platform.machine(),
        python=platform.python_version(),
        l4t=l4t,
        jetpack=None if l4t is None else _JETPACK_OF_L4T.get(l4t.partition(".")[0]),
        tensorrt=_tensorrt(layout.root),
        memory_bytes=memory.get("MemTotal", 0),
        memory_available_bytes=memory.get("MemAvailable", 0),
        disk_bytes=disk.f_frsize * disk.f_blocks,
        disk_free_bytes=disk.f_frsize * disk.f_bavail,
        inodes_free=disk.f_favail or (2**31 if disk.f_files == 0 else 0),  # btrfs counts none
        is_one_file_system=_is_one_file_system(layout),
        clock_floor=newest_accepted(layout),
    )


def facts_as_json(facts: Facts) -> dict[str, Any]:
    """Return the facts as they go over the wire."""
    return {**asdict(facts), "compatible": list(facts.compatible)}


def newest_accepted(layout: Layout) -> str | None:
    """Return the newest `created_at` of all releases that were ever taken here; None on a new device."""
    try:
        return read_counters(layout, RealFiles()).newest_created_at
    except DeployError:
        return None


def _l4t(path: Path) -> str | None:
    match = _L4T.search(_text(path))
    return f"{match[1]}.{match[2]}" if match else None


def _tensorrt(root: Path) -> str | None:
    """Return the version of the installed TensorRT; importing it would take seconds and memory on the GPU."""
    for paragraph in _text(root / "var/lib/dpkg/status").split("\n\n"):
        if re.search(r"^Package: libnvinfer\d+$", paragraph, re.M) and "\nStatus: install ok installed" in paragraph:
            version = re.search(r"^Version: (?:\d+:)?(\d+\.\d+\.\d+)", paragraph, re.M)
            if version:
                return version[1]
    found = {_VERSION.search(path.name) for path in root.glob("usr/lib/*-linux-gnu/libnvinfer.so.*.*.*")}
    versions = sorted(match[0] for match in found if match)
    return versions[-1] if versions else None


def _memory(path: Path) -> dict[str, int]:
    pairs = (line.partition(":") for line in _text(path).splitlines())
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in pairs if rest.split()[:1]}


def _is_one_file_system(layout: Layout) -> bool:
    # A rename is one step within one file system only.
    folders = [layout.var, layout.store, layout.incoming, layout.releases, layout.engines]
    return len({os.stat(folder).st_dev for folder in folders if folder.exists()}) == 1


def _text(path: Path) -> str:
    try:
        return read_file(path, most_bytes=_MAX_BYTES, follows_links=True).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
