"""Datasheet figures of Jetson modules: dense INT8 of the GPU alone, and the memory's rate.

The figures on the box are sparse and count the DLA, which no model of ours uses: they are twice to three times these.
Source: NVIDIA's module data sheets and its blog on JetPack 6.2 (Super modes); dense INT8 = 4096 operations for each
streaming multiprocessor and clock.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["JetsonModule", "jetson_module_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JetsonModule:
    """A module: `memory_gib` tells those of one name apart, `is_super` its faster power modes."""

    name: str
    memory_gib: int
    int8_tops: float
    memory_gb_s: float
    is_super: bool = False


_MODULES = (
    JetsonModule(name="AGX Orin", memory_gib=64, int8_tops=85.0, memory_gb_s=204.8),
    JetsonModule(name="AGX Orin", memory_gib=32, int8_tops=53.3, memory_gb_s=204.8),
    JetsonModule(name="Orin NX", memory_gib=16, int8_tops=30.1, memory_gb_s=102.4),
    JetsonModule(name="Orin NX", memory_gib=16, int8_tops=38.4, memory_gb_s=102.4, is_super=True),
    JetsonModule(name="Orin NX", memory_gib=8, int8_tops=25.1, memory_gb_s=102.4),
    JetsonModule(name="Orin NX", memory_gib=8, int8_tops=38.4, memory_gb_s=102.4, is_super=True),
    JetsonModule(name="Orin Nano", memory_gib=8, int8_tops=20.0, memory_gb_s=68.0),
    JetsonModule(name="Orin Nano", memory_gib=8, int8_tops=33.0, memory_gb_s=102.0, is_super=True),
    JetsonModule(name="Orin Nano", memory_gib=4, int8_tops=10.0, memory_gb_s=34.0),
    JetsonModule(name="Orin Nano", memory_gib=4, int8_tops=16.7, memory_gb_s=51.0, is_super=True),
)
_GIB = 1024**3


def jetson_module_of(model: str | None, memory_bytes: int) -> JetsonModule | None:
    """Return the module, or None where it is not known.

    Args:
        model: as the device tree has it, e.g. `NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super`.
        memory_bytes: as the driver tells it: a little less than the module has.
    """
    if model is None:
        return None
    words, is_super = model.split(), "Super" in model.split()
    for module in _MODULES:
        is_named = all(word in words for word in module.name.split())
        is_large = module.memory_gib * 0.75 < memory_bytes / _GIB <= module.memory_gib
        if is_named and is_large and module.is_super == is_super:
            return module
    return None
