"""Bounds and measured times of whole models on this machine, and where the difference goes.

python -m tests.bench.rooflines [MODEL TABLE]...       prints the section alone
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.quantize.account import accounts_of
from edge.quantize.this_machine import Measured, cores_of, measured_here, precisions_here
from edge.roofline.efficiency import MeasuredLayer, MeasuredModel

__all__ = ["CAUSES", "DEMO", "RooflineRow", "measure_rooflines", "rows_of"]

ROOT = Path(__file__).parents[2]
DEMO = (ROOT / "edge/demo/model/traffic.onnx", ROOT / "calib_cache/traffic.calib.json")
CAUSES = ("few channels", "depthwise", "other convolutions", "other layers", "no layer")
_FEW = 32  # of a vector of 16 floats, two of which are computed at once


@dataclass(frozen=True)
class RooflineRow:
    """One model in one precision on some cores; `lost` is by cause, as parts of the measured time."""

    model: str
    machine: str
    precision: str
    least_ms: float
    measured_ms: float
    fastest: float
    lost: dict[str, float]
    noise: float


def measure_rooflines(models: Sequence[tuple[Path, Path]]) -> tuple[list[RooflineRow], list[str]]:
    """Return a row for each model, precision, and number of cores; and what is to be said of the machine."""
    rows, machines = [], {}
    for name in dict.fromkeys(("this/1", "this")):
        for model, table in models:
            print(f"measuring {model.name} on {name}", file=sys.stderr)
            accounts = accounts_of(model, table=table, batch=None, remainder=precisions_here()[0])
            found = measured_here(accounts, cores=cores_of(name))
            rows += rows_of(model.stem, found)
            machines[found.machine.called] = found.machine
    return rows, [_of_machine(machine) for machine in machines.values()]


def rows_of(model: str, found: Measured) -> list[RooflineRow]:
    """Return a row for each precision."""
    return [
        RooflineRow(
            model=model,
            machine=found.machine.called,
            precision=precision.value.upper(),
            least_ms=1e3 * one.bound.least_s / one.bound.account.batch,
            measured_ms=1e3 * one.run_s / one.bound.account.batch,
            fastest=max(layer.efficiency for layer in one.layers),
            lost=_lost(one),
            noise=found.machine.noise,
        )
        for precision, one in found.models.items()
    ]


def _lost(model: MeasuredModel) -> dict[str, float]:
    """Return what is lost by cause, as parts of all that the nodes took."""
    whole_s = model.layers_s + model.beside_s
    lost = dict.fromkeys(CAUSES, 0.0)
    lost["no layer"] = model.beside_s / whole_s
    for one in model.layers:
        lost[_cause(one)] += one.lost_s / whole_s
    return lost


def _cause(one: MeasuredLayer) -> str:
    shape = one.layers[0].layer.shape
    if shape is None or len(one.layers) > 1:
        return "other layers"
    if shape.groups > 1:
        return "depthwise"
    return "few channels" if min(shape.channels_in, shape.channels_out) < _FEW else "other convolutions"


def _of_machine(machine) -> str:
    peaks = ", ".join(f"{kind.value.upper()} {rate.best / 1e9:.0f} G" for kind, rate in machine.peaks.items())
    *caches, memory = machine.steps
    levels = ", ".join(f"{step.bytes_per_s / 1e9:.0f} up to {step.up_to_bytes >> 10} KiB" for step in caches)
    return (
        f"`{machine.called}`: {machine.title}; {peaks} operations per second; GB/s: {levels}, "
        f"{memory.bytes_per_s / 1e9:.0f} beyond."
    )


if __name__ == "__main__":
    from tests.bench.rooflines_page import render_rooflines

    given = [Path(one) for one in sys.argv[1:]]
    pairs = list(zip(given[::2], given[1::2], strict=True)) or [DEMO]
    print("\n".join(render_rooflines(*measure_rooflines(pairs))))
