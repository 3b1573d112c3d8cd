"""What a device measures of itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FactsAnswer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsAnswer:
    """As `edge.device.facts.Facts`; None: not there or not known."""

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
