"""The facts of a device: `device.toml`, measurements, files, time. Nothing is imported, started or asked remotely."""

from __future__ import annotations

import os
import platform
import re
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from edge.device.durable import Files, typed
from edge.device.layout import Layout
from edge.device.state import read_counters
from edge.errors import DeployError
from edge.reading import read_file
from edge.reports import Facts, Moment
from edge.settings import decode_settings_text, read_settings_file

__all__ = [
    "DeviceSettings",
    "decode_settings",
    "gather_facts",
    "is_clock_sure",
    "name_of_host",
    "newest_accepted",
    "read_settings",
    "this_moment",
]

_TIME_ERROR = 5  # of linux/timex.h: nothing has set this clock lately
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")

_CHANNEL = re.compile(r"[a-z0-9-]{1,32}")
_L4T = re.compile(r"#\s*R(\d+)\s*\(release\),\s*REVISION:\s*([\d.]+)")
_JETPACK_OF_L4T = {"32": "4", "35": "5", "36": "6", "38": "7"}
_BOUNDS = (
    ("reserve_bytes", 0, 2**63 - 1),
    ("reserve_memory_bytes", 0, 2**63 - 1),
    ("build_deadline_s", 1, 7 * 86_400),
    ("golden_deadline_s", 1, 7 * 86_400),
)
_MAX_BYTES = 64 << 20  # the list of all packages of a system has some megabytes
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def this_moment() -> Moment:
    return Moment(
        at=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        boottime_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        boot_id=read_file(Path("/proc/sys/kernel/random/boot_id")).decode("ascii").strip(),
    )


def is_clock_sure() -> bool:
    """Return whether the kernel knows that something, such as NTP, keeps the clock right."""
    import ctypes

    # A struct timex has 208 bytes at most; all zero asks and sets nothing.
    asked = ctypes.create_string_buffer(512)
    state: int = ctypes.CDLL(None).adjtimex(asked)
    return 0 <= state < _TIME_ERROR


def name_of_host(host: str) -> str:
    """Return the name of a device whose host name is this, in the characters that are allowed."""
    return re.sub(r"[^a-z0-9-]+", "-", host.split(".")[0].lower()).strip("-")[:32].strip("-") or "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    """Settings of a device; `name` as in the inventory and in MQTT topics, `compatible` device classes that it takes.

    `channels` empty: that of the first release that it took. The larger of `reserve_bytes` and `reserve_share` stays
    free on the disk, `reserve_memory_bytes` in memory while an engine is built. `allow_unproven`: without golden frames
    as well.
    """

    name: str
    compatible: tuple[str, ...]
    channels: tuple[str, ...] = ()
    reserve_bytes: int = 1024**3
    reserve_share: float = 0.05
    reserve_memory_bytes: int = 256 * 1024**2
    build_deadline_s: int = 2700
    golden_deadline_s: int = 120
    allow_unproven: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name: expected a-z, 0-9 and '-', at most 32 characters, got {self.name!r}")
        if not self.compatible:
            raise ValueError("compatible: expected at least one device class, got none")
        for channel in self.channels:
            if not _CHANNEL.fullmatch(channel):
                raise ValueError(f"channels: expected a-z, 0-9 and '-', at most 32 characters, got {channel!r}")
        if not 0 <= self.reserve_share < 1:
            raise ValueError(f"reserve_share: expected 0 to 1, got {self.reserve_share}")
        for name, least, most in _BOUNDS:
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name}: expected {least} to {most}, got {getattr(self, name)}")


_HINT = "correct the file, or run: edge-deploy provision TARGET --name NAME, which writes it"


def decode_settings(text: str, *, origin: str) -> DeviceSettings:
    """DeployError `device.settings` with `origin`, the line or the key, what was expected and came."""
    return decode_settings_text(DeviceSettings, text, origin=origin, hint=_HINT)


@typed
def read_settings(path: Path) -> DeviceSettings:
    """DeployError `device.settings`, `device.disk.*`."""
    return read_settings_file(DeviceSettings, path, hint=_HINT)


@typed
def gather_facts(layout: Layout) -> Facts:
    """DeployError `device.settings`, `device.disk.*`."""
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


def newest_accepted(layout: Layout) -> str | None:
    """Return the newest `created_at` of all releases that were ever taken here; None on a new device."""
    try:
        return read_counters(layout, Files()).newest_created_at
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
