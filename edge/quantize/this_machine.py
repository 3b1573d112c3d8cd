"""This machine and a model on it, measured: peaks and layers in turn, so that what disturbs one disturbs the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from edge.calibrate.apply import usable_table
from edge.engine.kind import EngineKind, EngineRequest, load_kind
from edge.engine.kinds import choose_kind
from edge.engine.measuring import MeasuringKind, NodeMeter
from edge.errors import ConfigError, EngineError
from edge.model.file import read_model_file
from edge.model.inspect import inspect_file
from edge.quantize.account import PrecisionAccounts
from edge.quantize.forms import Forms
from edge.roofline.bound import bound_of_model
from edge.roofline.efficiency import MeasuredLayer, MeasuredModel, measured_model
from edge.roofline.measured import THIS, MeasuredMachine
from edge.types import ModelSpec, Precision

__all__ = [
    "ROUNDS",
    "Measured",
    "cores_of",
    "is_this_machine",
    "measured_here",
    "precisions_here",
    "require_processor",
]

ROUNDS = 3
_LEAST_NOISE = 0.03  # two rounds may agree by chance
_MORE_ROUNDS = 3  # where a layer was faster than what bounds it: then the peaks were measured too low


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """This machine, and the model in each precision that was run.

    Attributes:
        why_not: of a precision that was not.
    """

    machine: MeasuredMachine
    models: Mapping[Precision, MeasuredModel]
    why_not: Mapping[Precision, str]

    @property
    def excess(self) -> float:
        """By how much the fastest layer is faster than its bound; 0 or less: none is."""
        return max((one.excess for one in self.models.values()), default=0.0)

    @property
    def beaten(self) -> tuple[MeasuredLayer, ...]:
        """Layers that are faster than their bound by more than the noise of its measurement."""
        return tuple(
            layer
            for model in self.models.values()
            for layer in model.layers
            if layer.excess(model.resolution_s) > self._noise_of(layer)
        )

    @property
    def times_faster(self) -> float | None:
        """What INT8 was worth: the float model's time by that of INT8; None where one of both was not run."""
        floats = [one for kind, one in self.models.items() if kind is not Precision.INT8]
        if not floats or Precision.INT8 not in self.models:
            return None
        return floats[0].run_s / self.models[Precision.INT8].run_s

    def _noise_of(self, layer: MeasuredLayer) -> float:
        spreads = (self.machine.spread_of(one.layer.precision, one.layer.moved_bytes) for one in layer.layers)
        return max(*spreads, _LEAST_NOISE)


def is_this_machine(name: str) -> bool:
    """Return whether `--machine` names this machine, or some of its cores."""
    return name.strip().lower().partition("/")[0] == THIS


def cores_of(name: str, *, engine: str = "auto") -> int:
    """Return how many cores are meant by `this` (all that this process may use) or `this/N`.

    Raises:
        ConfigError: if there are not so many.
        EngineError: if no engine here can measure itself.
    """
    cores = _measuring_kind(engine).cores
    _, slash, asked = name.strip().partition("/")
    if not slash:
        return cores
    if not (asked.isascii() and asked.isdigit() and 1 <= int(asked) <= cores):
        raise ConfigError(
            f"machine {name!r}: expected a number of cores behind the slash, 1 to {cores}, got {asked!r}",
            hint=f"--machine {THIS} takes all {cores} that this process may use",
        )
    return int(asked)


def precisions_here(engine: str = "auto") -> tuple[Precision, Precision]:
    """Return the precisions that are measured here: a float type, in which what INT8 leaves is computed, and INT8.

    Raises:
        EngineError: if no engine here can measure itself.
    """
    return _measuring_kind(engine).precisions


def require_processor(engine: str) -> None:
    """Refuse an engine that does not run on the cores which read and decode, too.

    Raises:
        EngineError: then, or if no engine here can measure itself.
    """
    kind = _measuring_kind(engine)
    if not kind.is_processor:
        raise EngineError(
            f"engine {kind.name}: what it takes is not the processor's, which is all that is counted of this machine",
            hint="name the machine of the table, --machine NAME; edge-runtime bench measures the whole pipeline here",
        )


def measured_here(
    accounts: PrecisionAccounts,
    *,
    cores: int,
    engine: str = "auto",
    on_round: Callable[[], None] = lambda: None,
) -> Measured:
    """Measure this machine, and the model of the accounts in float and in INT8, as far as it can be run.

    Args:
        accounts: what INT8 leaves is counted in the first of `precisions_here`.
        cores: to use.
        engine: kind of engine, as in a pipeline file.
        on_round: called after each of ROUNDS, or more.

    Raises:
        EngineError: if no engine here can measure itself, or the model does not run.
    """
    kind = _measuring_kind(engine)
    runs = _Runs(accounts, kind, cores=cores)
    roofs = kind.roof_meter(cores=cores)
    machine = roofs.measure()
    for number in range(ROUNDS + _MORE_ROUNDS):
        runs.measure()
        machine = machine.with_rounds_of(roofs.measure())
        on_round()
        found = Measured(machine=machine, models=runs.on(machine), why_not=runs.why_not(machine))
        if number + 1 >= ROUNDS and found.excess <= _LEAST_NOISE:
            break
    return found


class _Kind(EngineKind, MeasuringKind, Protocol):
    """A kind that builds, and can be measured."""


def _measuring_kind(engine: str) -> _Kind:
    facts = choose_kind(engine).facts
    if (why_not := facts.why_not()) is not None:
        raise EngineError(f"engine {facts.name}: {why_not}", hint="a machine is measured by an engine that runs on it")
    kind = load_kind(facts.name)
    if not isinstance(kind, MeasuringKind):
        raise EngineError(f"engine {facts.name} cannot measure its machine and layers")
    return cast(_Kind, kind)


class _Runs:
    """The model in each precision that can be run here."""

    def __init__(self, accounts: PrecisionAccounts, kind: _Kind, *, cores: int) -> None:
        self._accounts = accounts
        self._why_not: dict[Precision, str] = {}
        file = read_model_file(accounts.spec.path)
        spec = inspect_file(file)
        table = None if accounts.table is None else usable_table(Path(accounts.table), spec, file.graph)
        self._forms = Forms(spec, table, file=file)
        self._kind, self._cores = kind, cores
        self._meters = dict(self._made(spec))

    def measure(self) -> None:
        for meter in self._meters.values():
            meter.measure()

    def on(self, machine: MeasuredMachine) -> dict[Precision, MeasuredModel]:
        """Return what was measured, against a machine."""
        found = {}
        for precision, meter in self._meters.items():
            bound = bound_of_model(self._accounts.by_precision[precision], machine)
            if bound is not None:
                found[precision] = measured_model(
                    bound,
                    meter.nodes(),
                    run_s=meter.run_s,
                    resolution_s=meter.resolution_s,
                    interrupted=meter.interrupted,
                )
        return found

    def why_not(self, machine: MeasuredMachine) -> dict[Precision, str]:
        """Return why a precision was not run, or is not bounded."""
        return {**self._why_not, **{kind: why for kind, why in machine.why_no.items() if kind not in self._why_not}}

    def _made(self, spec: ModelSpec) -> dict[Precision, NodeMeter]:
        meters = {}
        for precision in self._kind.precisions:
            if precision not in self._accounts.by_precision:
                continue
            if precision is Precision.INT8 and self._accounts.table is None and not spec.is_quantized:
                self._why_not[precision] = "INT8 without a calibration table is never run: give --table"
                continue
            meters[precision] = self._meter(spec, precision)
        return meters

    def _meter(self, spec: ModelSpec, precision: Precision) -> NodeMeter:
        account = self._accounts.by_precision[precision]
        request = EngineRequest(precision=precision, max_batch=account.batch, options=self._kind.options_type())
        plan = self._kind.build(self._forms, request)
        return self._kind.node_meter(
            dataclasses.replace(spec, is_quantized=precision is Precision.INT8),
            [name for layer in account.layers for name in layer.nodes],
            content=plan.data,
            rows=account.batch,
            cores=self._cores,
        )
