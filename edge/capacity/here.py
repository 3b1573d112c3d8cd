"""Which machine of the table this one is, and in which power mode: as its kernel and nvpmodel say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from edge.device.sensors import read_sensors
from edge.engine.cuda.jetson_modules import JetsonModule, jetson_module_of
from edge.reading import read_file
from edge.roofline.machines import Machine, find_machine

__all__ = ["key_of", "machine_here"]

_KIB = 1024


def machine_here(root: Path = Path("/")) -> Machine | None:
    """Return the machine, uncapped where its power mode is not known; None: it is none of the table.

    Args:
        root: where its files lie.
    """
    board = _text(root / "proc/device-tree/model").strip("\0\n ")
    module = jetson_module_of(board or None, _memory_bytes(root))
    if module is None:
        return None
    machine = find_machine(key_of(module))
    name = (read_sensors(root).mode or "").partition(" ")[2]
    return dataclasses.replace(machine, mode_name=name) if name in machine.facts.modes else machine


def key_of(module: JetsonModule) -> str:
    """Return what the table calls a module."""
    return f"{module.name.lower().replace(' ', '-')}-{module.memory_gib}gb" + ("-super" if module.is_super else "")


def _memory_bytes(root: Path) -> int:
    pairs = (line.partition(":") for line in _text(root / "proc/meminfo").splitlines())
    found = {name: rest.split() for name, _, rest in pairs}
    words = found.get("MemTotal", [])
    return int(words[0]) * _KIB if words and words[0].isdigit() else 0


def _text(path: Path) -> str:
    try:
        return read_file(path, follows_links=True).decode("utf-8", "replace")
    except OSError:
        return ""
