"""Proof of a machine, `edge.proof/1`: `prove` writes it, `capacity` and `roofline` read it as a machine."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from edge.errors import ConfigError
from edge.reading import json_value, read_file
from edge.roofline.machines import (
    Architecture,
    Cpu,
    GpuSpec,
    Machine,
    MachineFacts,
    Memory,
    find_machine,
    machine_table,
)
from edge.types import Precision
from edge.untrusted import cleaned_json

__all__ = [
    "FORMAT",
    "MACHINE",
    "Proof",
    "Row",
    "Step",
    "Verdict",
    "decode_proof",
    "encode_proof",
    "machine_named",
    "worst_code",
]

FORMAT = "edge.proof/1"
MACHINE = "machine"
"""The row that says which machine it is: `key` in the table of machines, `cores`, `memory_bytes`."""

PEAKS: Mapping[str, Precision | None] = {
    "int8 tensor cores": Precision.INT8,
    "fp16 tensor cores": Precision.FP16,
    "fp32 CUDA cores": Precision.FP32,
    "int8 convolution": Precision.INT8,
    "fp32 convolution": Precision.FP32,
    "memory copy": None,
}
"""Rows that measure a peak, as the kinds of engine name them: its precision; None: bytes of the memory."""

_MAX_BYTES = 4 << 20
_MEASURED_BUS_BITS = 8  # with the clock that gives the bandwidth


class Verdict(str, enum.Enum):
    """Verdict of a row; of a step and a proof the worst of its rows, in this order."""

    TOLD = "told"  # a fact or a figure that nothing is held against
    ABSENT = "not here"  # the machine lacks what it takes, `detail` says what
    PROVEN = "proven"
    WORSE = "worse"  # it works, and slower or less well than expected
    FAILS = "fails"


_ORDER = list(Verdict)
_CODES = {Verdict.WORSE: 10, Verdict.FAILS: 4}


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the file: unknown keys are refused."""


class Row(_Part, frozen=True, kw_only=True):
    """One thing that was looked at; `values` are plain JSON."""

    name: str
    verdict: Verdict
    detail: str
    values: dict[str, Any] = {}


class Step(_Part, frozen=True, kw_only=True):
    """One step; `as_service`: the same, inside the sandbox of the service."""

    number: int
    name: str
    seconds: float
    rows: tuple[Row, ...]
    as_service: bool = False

    @property
    def verdict(self) -> Verdict:
        return worst(row.verdict for row in self.rows)


class Proof(_Part, frozen=True, kw_only=True):
    """The whole file."""

    format: str
    host: str
    software: str
    made_at: str
    seconds: float
    steps: tuple[Step, ...]

    @property
    def verdict(self) -> Verdict:
        return worst(step.verdict for step in self.steps)

    @property
    def exit_code(self) -> int:
        """0: what is here is proven; 10: something is slower or worse than expected; 4: something fails."""
        return worst_code((self,))

    def rows(self) -> Iterator[Row]:
        """Yield those of all steps that ran plainly."""
        yield from (row for step in self.steps if not step.as_service for row in step.rows)


def worst_code(proofs: Iterable[Proof]) -> int:
    return _CODES.get(worst(proof.verdict for proof in proofs), 0)


def worst(verdicts: Iterator[Verdict]) -> Verdict:
    return max(verdicts, key=_ORDER.index, default=Verdict.TOLD)


def encode_proof(proof: Proof) -> bytes:
    return msgspec.json.format(msgspec.json.encode(proof), indent=1) + b"\n"


def decode_proof(content: bytes, where: str) -> Proof:
    """`where` names the file in errors. Raises `ConfigError` if it is no proof."""
    try:
        proof = msgspec.convert(cleaned_json(json_value(content)), type=Proof)
    except ValueError as error:
        raise ConfigError(
            f"{where}: expected a proof, {FORMAT}: {error}", hint="edge-runtime prove writes one"
        ) from None
    if proof.format != FORMAT:
        raise ConfigError(
            f"{where}: expected {FORMAT}, got {proof.format!r}", hint="prove it anew with this edge-deploy"
        )
    return proof


def machine_named(name: str) -> Machine:
    """Return the machine that `--machine` names: one of the table, or that of a proof's file (`*.json`).
    Raises `ConfigError` if there is none.
    """
    return _machine_of(Path(name)) if name.endswith(".json") else find_machine(name)


def _machine_of(path: Path) -> Machine:
    """Return the machine that a proof was made on, with the peaks that were measured there in place of derived ones.

    What no peak says (watts, decoder, DLA) is that of the table, where the machine is one of it.
    Raises `ConfigError` if the file is no proof, or the memory's rate was not measured.
    """
    try:
        content = read_file(path, most_bytes=_MAX_BYTES, follows_links=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    proof = decode_proof(content, str(path))
    rows = {row.name: row for row in reversed([*proof.rows()])}  # of two of a name the first
    peaks = {name: _number(rows[name].values.get("value")) for name in PEAKS if name in rows}
    bytes_per_s = 1e9 * peaks.get("memory copy", 0.0)
    if bytes_per_s <= 0:
        raise ConfigError(f"{path}: this proof has not measured the rate of the memory", hint="prove the machine anew")
    said = rows[MACHINE].values if MACHINE in rows else {}
    key = said.get("key")
    known = find_machine(key) if isinstance(key, str) else None
    rates = {PEAKS[name]: 1e6 * value for name, value in peaks.items() if PEAKS[name] is not None and value > 0}
    return _measured(path.stem, proof.host, said, rates, bytes_per_s=bytes_per_s, known=known)


def _measured(
    key: str,
    host: str,
    said: Mapping[str, Any],
    rates: Mapping[Precision | None, float],
    *,
    bytes_per_s: float,
    known: Machine | None,
) -> Machine:
    """Return a machine of one unit of 1 MHz, whose operations per clock are the rates."""
    table = machine_table()
    rates = {**_derived(known), **rates}
    name = known.facts.architecture if known else key
    architecture = Architecture(
        name=f"measured on {host}",
        source=FORMAT,
        vector={one.value: rate for one, rate in rates.items() if one is Precision.FP32},
        tensor={one.value: rate for one, rate in rates.items() if one in (Precision.INT8, Precision.FP16)},
        sparse_factor=table.architectures[name].sparse_factor if known else 1,
    )
    gpu = GpuSpec(sm_count=1, mhz=1, source=FORMAT, l2_mib=known.facts.gpu.l2_mib if known else None)
    gb = _number(said.get("memory_bytes")) / 1e9
    cores = int(_number(said.get("cores")))
    memory = Memory(bus_bits=_MEASURED_BUS_BITS, mhz=bytes_per_s / 2e6, source=FORMAT, gb=gb or None)
    facts = MachineFacts(
        name=f"{known.title if known else host}, measured",
        architecture=name,
        gpu=gpu,
        memory=memory,
        cpu=Cpu(cores=cores, source=FORMAT) if cores > 0 else None,
        dla=known.facts.dla if known else None,
        decoder=known.facts.decoder if known else None,
    )
    architectures = {**table.architectures, name: architecture}
    return Machine(key=key, facts=facts, table=msgspec.structs.replace(table, architectures=architectures))


def _derived(known: Machine | None) -> dict[Precision | None, float]:
    """Return the rates of the table, for what was not measured."""
    found = {} if known is None else {one: known.peak(one) for one in Precision}
    return {one: rate / 1e6 for one, rate in found.items() if rate is not None}


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
