"""A machine in one of its power modes: peaks and bandwidth, derived from units, operations per clock and clock."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from edge.errors import ConfigError
from edge.roofline.table import MachineFacts, MachineTable, Mode, machine_table
from edge.types import Precision

__all__ = ["Machine", "all_machines", "find_machine"]

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
        """The power mode."""
        return None if self.mode_name is None else self.facts.modes[self.mode_name]

    def in_each_mode(self) -> Iterator[Machine]:
        """Yield the machine in each power mode that is known of it."""
        for name in self.facts.modes:
            yield replace(self, mode_name=name)

    @property
    def called(self) -> str:
        """Its name as `--machine` takes it."""
        return self.key if self.mode_name is None else f"{self.key}/{self.mode_name}"

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.facts.name if self.mode_name is None else f"{self.facts.name}, {self.mode_name}"

    @property
    def sm_count(self) -> int:
        """Streaming multiprocessors that are switched on."""
        count = None if self.mode is None else self.mode.tpc_count
        return self.facts.gpu.sm_count if count is None else _SM_PER_TPC * count

    @property
    def gpu_hz(self) -> float:
        """Highest clock of the GPU."""
        mhz = None if self.mode is None else self.mode.gpu_mhz
        return 1e6 * (self.facts.gpu.mhz if mhz is None else mhz)

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth of the memory."""
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

    def move_s(self, moved_bytes: float) -> float:
        """Return the least seconds in which so many bytes pass through the memory."""
        return moved_bytes / self.bytes_per_s

    def dla_peak(self, *, is_sparse: bool = False) -> float:
        """Return INT8 operations per second of all DLA cores; 0 where there is none."""
        if self.facts.dla is None:
            return 0.0
        named = None if self.mode is None else self.mode.dla_mhz
        clocks = (self.facts.dla.mhz,) * self.facts.dla.cores if named is None else named
        rate = self.table.dla
        return sum(clocks) * 1e6 * rate.int8 * (rate.sparse_factor if is_sparse else 1.0)

    @property
    def _cpu_cores(self) -> int | None:
        if self.mode is not None:
            return self.mode.cpu_cores
        return None if self.facts.cpu is None else self.facts.cpu.cores

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        return {
            "machine": self.called,
            "name": self.title,
            "watts": None if self.mode is None else self.mode.watts,
            "memory_gb": self.facts.memory.gb,
            "cpu_cores": self._cpu_cores,
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


def find_machine(name: str, *, beside: Sequence[str] = ()) -> Machine:
    """Return the machine called `name`: a key of the table, and a power mode behind a slash if one is meant.

    Args:
        name: case does not matter.
        beside: other names that the caller takes, for the message.

    Raises:
        ConfigError: if there is none; the nearest names are in it.
    """
    key, slash, mode = name.strip().lower().partition("/")
    table = machine_table()
    if key not in table.machines:
        raise ConfigError(
            f"machine {name!r}: there is none of that name{_nearest(key, [*table.machines, *beside])}",
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


def _plain(mode: str) -> str:
    return mode.lower().removeprefix("mode_")


def _nearest(key: str, names: list[str]) -> str:
    near = difflib.get_close_matches(key, names, n=3, cutoff=0.4) or [name for name in names if key and key in name][:3]
    return f" (nearest: {', '.join(near)})" if near else ""
