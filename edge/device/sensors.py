"""Heat, power and throttling as the kernel tells them in /sys, read without root, tools or libraries.

Sources: Linux Documentation/driver-api/thermal/sysfs-api.rst and Documentation/hwmon/sysfs-interface.rst for files and
units; NVIDIA Jetson Linux Developer Guide, "Platform Power and Performance", for the alerts among the cooling
devices and the over-current counters of `soctherm_oc`; what `nvpmodel` writes to /var/lib/nvpmodel/status.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edge.reading import read_file

__all__ = ["Sensors", "ThermalZone", "read_sensors"]

_MAX_BYTES = 64 << 10
_COLDEST_C, _HOTTEST_C = -100.0, 250.0  # a zone that is switched off reads as something outside
_LIMITS = ("passive", "hot", "critical")
_OVER_CURRENT = {1: "under-voltage", 2: "average-over-current", 3: "instantaneous-over-current"}
# Cooling by less work. A fan is none; Jetsons say so by alerts, and move the others for power modes, too.
_THROTTLES = re.compile(r"(thermal-)?(cpufreq|devfreq)-.*|Processor")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalZone:
    """A place that is measured; `limit_c`: the kernel slows down or switches off from there, None: it says none.

    `celsius` is None where the sensor answers nothing, as one of a part that is switched off.
    """

    celsius: float | None
    limit_c: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensors:
    """One look; what a machine does not have is empty.

    `zones` by name; `throttled_by`: cooling devices that hold the machine back right now; `events`: how often it was
    held back since it started, by kind; `watts` by rail, not to be added: a rail may be part of another; `mode`: the
    power mode, `ID` or `ID NAME`.
    """

    zones: Mapping[str, ThermalZone] = field(default_factory=dict)
    throttled_by: tuple[str, ...] = ()
    events: Mapping[str, int] = field(default_factory=dict)
    watts: Mapping[str, float] = field(default_factory=dict)
    mode: str | None = None


def read_sensors(root: Path = Path("/")) -> Sensors:
    """Return what the machine says now; never raises. A sensor may take some milliseconds to answer."""
    return Sensors(
        zones=dict(_zones(root / "sys/class/thermal")),
        throttled_by=_throttled_by(root / "sys/class/thermal"),
        events=_events(root / "sys"),
        watts=dict(_watts(root / "sys/class/hwmon")),
        mode=_mode(root),
    )


def _zones(thermal: Path) -> Iterator[tuple[str, ThermalZone]]:
    seen: set[str] = set()
    for folder in _folders(thermal, "thermal_zone"):
        name = _text(folder / "type") or folder.name
        name = name if name not in seen else f"{name}-{folder.name.removeprefix('thermal_zone')}"
        seen.add(name)
        yield name, ThermalZone(celsius=_celsius(folder / "temp"), limit_c=_limit_c(folder))


def _celsius(path: Path) -> float | None:
    millidegrees = _number(path)
    if millidegrees is None or not _COLDEST_C <= millidegrees / 1e3 <= _HOTTEST_C:
        return None
    return millidegrees / 1e3


def _limit_c(zone: Path) -> float | None:
    """The lowest point from which on it is slowed down or switched off; the points of fans are none."""
    points = [path for path in _paths(zone, "trip_point_*_type") if _text(path) in _LIMITS]
    found = [_celsius(path.with_name(path.name.replace("_type", "_temp"))) for path in points]
    return min((one for one in found if one is not None and one > 0), default=None)


def _throttled_by(thermal: Path) -> tuple[str, ...]:
    states = {folder: _text(folder / "type") for folder in _folders(thermal, "cooling_device")}
    alerts = {folder: name for folder, name in states.items() if name.endswith("-alert")}
    throttles = alerts or {folder: name for folder, name in states.items() if _THROTTLES.fullmatch(name)}
    active = {name for folder, name in throttles.items() if (_number(folder / "cur_state") or 0) > 0}
    return tuple(sorted(active))


def _events(sys: Path) -> dict[str, int]:
    events: dict[str, int] = {}
    for folder in _folders(sys / "class/hwmon", "hwmon"):
        if _text(folder / "name") == "soctherm_oc":
            for number, kind in _OVER_CURRENT.items():
                count = _number(folder / f"oc{number}_event_cnt")
                if count is not None:
                    events[kind] = count
    # x86: one package counts for all its cores, so the largest count is that of the machine.
    heat = [_number(path) for path in _paths(sys / "devices/system/cpu", "cpu*/thermal_throttle/*_throttle_count")]
    counts = [count for count in heat if count is not None]
    return {**events, "heat": max(counts)} if counts else events


def _watts(hwmon: Path) -> Iterator[tuple[str, float]]:
    for folder in _folders(hwmon, "hwmon"):
        if _text(folder / "name") != "ina3221":
            continue
        for path in _paths(folder, "in*_label"):
            number = path.name.removeprefix("in").removesuffix("_label")
            volts, amperes = _number(folder / f"in{number}_input"), _number(folder / f"curr{number}_input")
            if volts is not None and amperes is not None:  # a sum of channels has no current of its own
                yield _text(path), volts * amperes / 1e6


def _mode(root: Path) -> str | None:
    match = re.search(r"pmode:0*(\d+)", _text(root / "var/lib/nvpmodel/status"))
    if match is None:
        return None
    names = re.search(rf"<\s*POWER_MODEL\s+ID={match[1]}\s+NAME=(\S+)\s*>", _text(root / "etc/nvpmodel.conf"))
    return match[1] if names is None else f"{match[1]} {names[1]}"


def _folders(folder: Path, prefix: str) -> list[Path]:
    found = [path for path in _paths(folder, f"{prefix}*") if path.name.removeprefix(prefix).isdigit()]
    return sorted(found, key=lambda path: int(path.name.removeprefix(prefix)))


def _paths(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None


def _text(path: Path) -> str:
    """A file in one line, without what no name has; "" where it cannot be read (EAGAIN of a part that is off)."""
    try:
        content = read_file(path, most_bytes=_MAX_BYTES, follows_links=True)
    except OSError:
        return ""
    return re.sub(r"[^\x20-\x7e\n]", "?", content.decode("utf-8", "replace")).strip().replace("\n", " ")
