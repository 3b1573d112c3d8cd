"""`device.toml`: what a person says of a device, in a strict subset of TOML, because Python 3.10 has no TOML reader."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from edge.device.disk import typed
from edge.errors import DeployError
from edge.reading import read_file

__all__ = ["DeviceSettings", "decode_settings", "read_settings"]

_LINE = re.compile(r"([A-Za-z0-9_-]+)\s*=\s*(.+)")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")

_CHANNEL = re.compile(r"[a-z0-9-]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    """What a person says of a device; lengths of time in seconds.

    Attributes:
        name: as in the fleet's inventory and in MQTT topics.
        compatible: device classes whose bundles it takes.
        channels: of releases that it takes; none: that of the first one that it took.
        reserve_bytes, reserve_share: what stays free on the disk: the larger of the two.
        reserve_memory_bytes: what stays free in memory while an engine is built.
        build_deadline_s, golden_deadline_s: how long the steps may take.
        allow_unproven: take releases without golden frames as well.
        keep_releases: names of releases that garbage collection leaves alone.
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
    keep_releases: tuple[str, ...] = ()

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


_KINDS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "compatible": (list,),
    "channels": (list,),
    "keep_releases": (list,),
    "reserve_share": (float, int),
    "allow_unproven": (bool,),
}


def decode_settings(text: str, *, origin: str) -> DeviceSettings:
    """Return the settings that a `device.toml` states.

    Raises:
        DeployError: `device.settings` with `origin`, the line, what was expected and what came.
    """
    values: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, value = _pair(line.strip(), f"{origin}:{number}")
        if key in values:
            raise _wrong(f"{origin}:{number}", f"{key} is stated twice")
        values[key] = value
    try:
        return DeviceSettings(**values)
    except (TypeError, ValueError) as error:
        raise _wrong(origin, str(error).replace("DeviceSettings.__init__() ", "")) from None


@typed
def read_settings(path: Path) -> DeviceSettings:
    """Return the settings of a file.

    Raises:
        DeployError: `device.settings`; `device.disk.*`.
    """
    try:
        # Root's folder: what is linked there, root has linked.
        return decode_settings(read_file(path, follows_links=True).decode("utf-8"), origin=str(path))
    except FileNotFoundError:
        raise _wrong(str(path), "there is no such file") from None
    except UnicodeDecodeError as error:
        raise _wrong(str(path), f"expected UTF-8: {error}") from None


def _pair(line: str, where: str) -> tuple[str, Any]:
    known = [one.name for one in fields(DeviceSettings)]
    match = _LINE.fullmatch(line)
    if match is None:
        raise _wrong(where, f"expected key = value, got {line[:80]!r}")
    key, text = match[1], match[2]
    if key not in known:
        raise _wrong(where, f"unknown key {key!r}; known: {', '.join(known)}")
    value = _value(text, where)
    kinds = _KINDS.get(key, (int,))
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise _wrong(where, f"{key}: got {text[:80]}")
    if isinstance(value, list) and not all(isinstance(one, str) for one in value):
        raise _wrong(where, f"{key}: expected a list of texts, got {text[:80]}")
    return key, tuple(value) if isinstance(value, list) else value


def _value(text: str, where: str) -> Any:
    # Numbers, texts in double quotes and lists of them are written alike in TOML and in JSON.
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        raise _wrong(where, f'expected a number, a text in " or a list of texts, got {text[:80]}') from None
    rest = text[end:].strip()
    if rest and not rest.startswith("#"):
        raise _wrong(where, f"expected nothing after the value, got {rest[:80]!r}")
    return value


def _wrong(where: str, what: str) -> DeployError:
    return DeployError(
        "device.settings", f"{where}: {what}", hint="correct the file, or run: edge-deploy provision, which writes it"
    )
