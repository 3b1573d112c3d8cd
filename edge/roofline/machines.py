"""A machine in one of its power modes: peaks and bandwidth, derived from units, operations per clock and clock.

The table of machines is `machines.yaml`: facts with their sources, as they stand in the file.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from typing import Annotated, Any

import msgspec

from edge.errors import ConfigError, nearest
from edge.types import Precision

__all__ = [
    "Architecture",
    "Machine",
    "MachineFacts",
    "MachineTable",
    "all_machines",
    "find_machine",
    "jetson_of_board",
    "machine_table",
]

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
    tpc_count: Count | None = None
    gpu_mhz: Positive | None = None
    memory_mhz: Positive | None = None
    dla_mhz: tuple[Positive, ...] | None = None


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

    sources: dict[str, str]
    architectures: dict[str, Architecture]
    dla: DlaRate
    machines: dict[str, MachineFacts]


@functools.cache
def machine_table() -> MachineTable:
    """That every figure has a source, and every machine an architecture, a test holds: the file is our own."""
    return msgspec.yaml.decode((resources.files("edge.roofline") / "machines.yaml").read_bytes(), type=MachineTable)


_SUPER = "-super"  # the faster power modes of a module are a machine of their own
_SM_PER_TPC = 2
_BITS_PER_BYTE = 8
_TRANSFERS_PER_CLOCK = 2
_VECTOR = frozenset((Precision.FP32,))  # our engines compute FP32 without TF32, so on CUDA cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine of the table; `mode` is None where nothing is capped: the most that it can do."""

    key: str
    facts: MachineFacts
    table: MachineTable
    mode_name: str | None = None

    @property
    def mode(self) -> Mode | None:
        return None if self.mode_name is None else self.facts.modes[self.mode_name]

    def in_each_mode(self) -> Iterator[Machine]:
        for name in self.facts.modes:
            yield replace(self, mode_name=name)

    @property
    def called(self) -> str:
        """Its name as `--machine` takes it."""
        return self.key if self.mode_name is None else f"{self.key}/{self.mode_name}"

    @property
    def title(self) -> str:
        return self.facts.name if self.mode_name is None else f"{self.facts.name}, {self.mode_name}"

    @property
    def sm_count(self) -> int:
        """Streaming multiprocessors that are switched on."""
        count = None if self.mode is None else self.mode.tpc_count
        return self.facts.gpu.sm_count if count is None else _SM_PER_TPC * count

    @property
    def gpu_hz(self) -> float:
        mhz = None if self.mode is None else self.mode.gpu_mhz
        return 1e6 * (self.facts.gpu.mhz if mhz is None else mhz)

    @property
    def bytes_per_s(self) -> float:
        mhz = None if self.mode is None else self.mode.memory_mhz
        clock = self.facts.memory.mhz if mhz is None else mhz
        return self.facts.memory.bus_bits / _BITS_PER_BYTE * _TRANSFERS_PER_CLOCK * clock * 1e6

    @property
    def l2_bytes(self) -> float | None:
        """Size of the GPU's last cache; None where it is not known."""
        return None if self.facts.gpu.l2_mib is None else self.facts.gpu.l2_mib * 2**20

    def unit_peak(self, unit: str, precision: str, *, is_sparse: bool = False) -> float | None:
        """Return operations per second of `vector` or `tensor` units; None where the rate is not known."""
        architecture = self.table.architectures[self.facts.architecture]
        rates = {"vector": architecture.vector, "tensor": architecture.tensor}[unit]
        if precision not in rates:
            return None
        factor = architecture.sparse_factor if is_sparse and unit == "tensor" else 1.0
        return self.sm_count * rates[precision] * factor * self.gpu_hz

    def peak(self, precision: Precision) -> float | None:
        """Return dense operations per second as our engines compute; None where the rate is not known."""
        return self.unit_peak("vector" if precision in _VECTOR else "tensor", precision.value)

    def ridge(self, precision: Precision) -> float | None:
        """Return the operations per byte from which on compute is the bound; None where the peak is not known."""
        peak = self.peak(precision)
        return None if peak is None else peak / self.bytes_per_s

    def dla_peak(self, *, is_sparse: bool = False) -> float:
        """Return INT8 operations per second of all DLA cores; 0 where there is none."""
        if self.facts.dla is None:
            return 0.0
        named = None if self.mode is None else self.mode.dla_mhz
        clocks = (self.facts.dla.mhz,) * self.facts.dla.cores if named is None else named
        rate = self.table.dla
        return sum(clocks) * 1e6 * rate.int8 * (rate.sparse_factor if is_sparse else 1.0)

    @property
    def cpu_cores(self) -> int | None:
        if self.mode is not None:
            return self.mode.cpu_cores
        return None if self.facts.cpu is None else self.facts.cpu.cores

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": self.called,
            "name": self.title,
            "watts": None if self.mode is None else self.mode.watts,
            "memory_gb": self.facts.memory.gb,
            "cpu_cores": self.cpu_cores,
            "dla_int8_per_s": self.dla_peak(),
            "decoder": msgspec.to_builtins(self.facts.decoder),
            "peaks_per_s": {kind.value: self.peak(kind) for kind in Precision},
            "bytes_per_s": self.bytes_per_s,
            "ridge": {kind.value: self.ridge(kind) for kind in Precision},
        }


def all_machines() -> Iterator[Machine]:
    """Yield every machine of the table, uncapped."""
    table = machine_table()
    for key, facts in table.machines.items():
        yield Machine(key=key, facts=facts, table=table)


def find_machine(name: str) -> Machine:
    """Return the machine called `name`: a key of the table, and a power mode behind a slash if one is meant.

    `name`: case does not matter. Raises `ConfigError` if there is none; the nearest names are in it.
    """
    key, slash, mode = name.strip().lower().partition("/")
    table = machine_table()
    if key not in table.machines:
        raise ConfigError(
            f"machine {name!r}: there is none of that name{nearest(key, [*table.machines])}",
            hint="edge-deploy roofline --list shows all",
        )
    facts = table.machines[key]
    if not slash:
        return Machine(key=key, facts=facts, table=table)
    names = {_plain(one): one for one in facts.modes}
    if _plain(mode) not in names:
        known = f"expected one of {', '.join(facts.modes)}" if facts.modes else "none of its modes is known"
        raise ConfigError(f"machine {name!r}: {key} has no power mode {mode!r}", hint=known)
    return Machine(key=key, facts=facts, table=table, mode_name=names[_plain(mode)])


def jetson_of_board(board: str, memory_bytes: int) -> Machine | None:
    """Return the Jetson module, uncapped; None where the table has none that is called so.

    Args:
        board: as the device tree has it, e.g. `NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super`.
        memory_bytes: as system or driver tell it: a little less than the module has. Tells those of one name apart.
    """
    words, gib = set(board.lower().split()), memory_bytes / 2**30
    for machine in all_machines():
        *name, _ = machine.key.removesuffix(_SUPER).split("-")  # of orin-nano-8gb-super: orin, nano
        is_named = machine.facts.name.startswith("Jetson") and words.issuperset(name)
        most_gib = machine.facts.memory.gb or 0.0
        is_large = most_gib * 0.75 < gib <= most_gib
        if is_named and is_large and machine.key.endswith(_SUPER) == ("super" in words):
            return machine
    return None


def _plain(mode: str) -> str:
    return mode.lower().removeprefix("mode_")
