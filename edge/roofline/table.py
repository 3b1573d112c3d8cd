"""The table of machines, `machines.yaml`: facts with their sources, as they stand in the file."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec

from edge.config.convert import convert
from edge.config.yaml_file import read_yaml
from edge.errors import ConfigError

__all__ = ["Architecture", "MachineFacts", "MachineTable", "Mode", "machine_table", "read_machines"]

FORMAT = "edge.machines/1"
_SEE = "edge/roofline/machines.yaml"

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class _Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the file: unknown keys are refused."""


class Architecture(_Facts, frozen=True, kw_only=True):
    """Dense operations of one SM per clock by precision: on CUDA cores (`vector`), on tensor cores."""

    name: str
    source: str
    vector: dict[str, Positive]
    tensor: dict[str, Positive] = {}
    sparse_factor: Positive = 1


class GpuSpec(_Facts, frozen=True, kw_only=True):
    """`mhz` is the highest clock; `l2_mib` is None where it is not known."""

    sm_count: Count
    mhz: Positive
    source: str
    l2_mib: Positive | None = None


class Memory(_Facts, frozen=True, kw_only=True):
    """Of a Jetson: shared by all that is on it."""

    bus_bits: Count
    mhz: Positive
    source: str
    gb: Positive | None = None


class Cpu(_Facts, frozen=True, kw_only=True):
    """Cores of the processor."""

    cores: Count
    source: str


class DlaRate(_Facts, frozen=True, kw_only=True):
    """Dense INT8 operations of one core per clock."""

    int8: Positive
    sparse_factor: Positive
    source: str


class Dla(_Facts, frozen=True, kw_only=True):
    """Deep learning accelerators, beside the GPU."""

    cores: Count
    mhz: Positive
    source: str


class DecoderSpec(_Facts, frozen=True, kw_only=True):
    """By codec: how many streams of which size and rate at once, or frames per second at 1080p."""

    source: str
    streams: dict[str, dict[str, Count]] = {}
    fps_1080p: dict[str, Count] = {}


class Advertised(_Facts, frozen=True, kw_only=True):
    """The TOPS of the box: sparse INT8 of GPU and DLA together, unless `is_of` says otherwise."""

    tops: Positive
    source: str
    is_of: str = "sparse INT8, of GPU and DLA together"


class Mode(_Facts, frozen=True, kw_only=True):
    """A power mode of nvpmodel; what is None is not capped by it. `dla_mhz` is one clock a core."""

    cpu_cores: Count
    watts: Positive | None = None
    cpu_mhz: Positive | None = None
    tpc_count: Count | None = None
    gpu_mhz: Positive | None = None
    memory_mhz: Positive | None = None
    dla_mhz: tuple[Positive, ...] | None = None
    is_default: bool = False


class MachineFacts(_Facts, frozen=True, kw_only=True):
    """One machine; what is None is not known, or not there."""

    name: str
    architecture: str
    gpu: GpuSpec
    memory: Memory
    cpu: Cpu | None = None
    dla: Dla | None = None
    decoder: DecoderSpec | None = None
    advertised: Advertised | None = None
    modes: dict[str, Mode] = {}
    modes_source: str | None = None


class MachineTable(_Facts, frozen=True, kw_only=True):
    """The whole file."""

    format: str
    sources: dict[str, str]
    architectures: dict[str, Architecture]
    dla: DlaRate
    machines: dict[str, MachineFacts]


def read_machines(path: Path) -> MachineTable:
    """Return the table at `path`.

    Raises:
        ConfigError: if it is not one, or names a source or an architecture that it does not have.
    """
    document = read_yaml(path)
    table = convert(document, MachineTable, see=_SEE)
    if table.format != FORMAT:
        raise document.error(("format",), f"expected {FORMAT}, got {table.format!r}")
    for key, machine in table.machines.items():
        if machine.architecture not in table.architectures:
            raise document.error(("machines", key, "architecture"), f"there is no {machine.architecture!r} in the file")
    unknown = sorted(set(_sources(msgspec.to_builtins(table))) - set(table.sources))
    if unknown:
        raise ConfigError(f"{path}: sources that it does not explain: {', '.join(unknown)}; add them to `sources`")
    return table


@functools.cache
def machine_table() -> MachineTable:
    """Return the table that comes with the package."""
    with resources.as_file(resources.files("edge.roofline") / "machines.yaml") as path:
        return read_machines(path)


def _sources(value: object) -> list[str]:
    """Return the sources that are named anywhere in a part of the file."""
    if not isinstance(value, Mapping):
        return []
    named = [value[key] for key in ("source", "modes_source") if isinstance(value.get(key), str)]
    return named + [name for part in value.values() for name in _sources(part)]
