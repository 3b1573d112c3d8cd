"""INT8 for the demo: its model calibrated on frames of its own cameras and proven on others, or the reason why not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edge.calibrate.table import Evidence, write_table
from edge.calibrate.thresholds import Method
from edge.engine.kind import quick_kind, usable_kind
from edge.errors import EdgeError
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.quantize.make_table import CalibrationOptions, MaxDrop, calibrate
from edge.quantize.make_table.subject import layers_of

__all__ = ["MAX_DROP", "DemoCalibration", "calibrate_demo"]

MAX_DROP = 1.0
"""Promise, in mAP50-95 points: INT8 loses no more, or is not used."""

_METHOD = Method.MSE  # one pass and a proof; the search of `auto` takes minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCalibration:
    """Result of the calibration.

    Attributes:
        table: file name of the table beside the clips; None: INT8 is not to be used, because of `problem`.
        images: that ranges come from; others prove them.
        float_layers: how many layers stay in float: the last ones, whose outputs are boxes and scores.
    """

    table: str | None
    evidence: Evidence | None
    images: int
    float_layers: int
    seconds: float
    problem: str | None

    def as_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "evidence": msgspec.to_builtins(self.evidence),
            "max_drop": MAX_DROP,
            "images": self.images,
            "float_layers": self.float_layers,
            "seconds": round(self.seconds, 2),
            "problem": self.problem,
        }


def calibrate_demo(
    model: Path, folder: Path, *, on_work: Callable[[str, int], None], on_step: Callable[[], None]
) -> DemoCalibration:
    """Calibrate `model`, a float ONNX file, on the labelled stills in `folder` and write the table beside them.

    `folder`: with `images/` and `labels/`. `on_work`: told what begins, and in how many steps, about.
    """
    started = time.monotonic()
    try:
        kind = quick_kind(usable_kind())
        done = calibrate(_options(model, folder), kind, on_stage=on_work, on_step=on_step)
        name = f"{model.stem}.calib.json"
        write_table(folder / name, done.table)
    except EdgeError as error:  # the demo goes on in float, and its account says why
        seconds = time.monotonic() - started
        return DemoCalibration(
            table=None, evidence=None, images=0, float_layers=0, seconds=seconds, problem=error.problem
        )
    return DemoCalibration(
        table=name,
        evidence=done.table.evidence,
        images=done.observations.images,
        float_layers=len(done.table.keep_float),
        seconds=time.monotonic() - started,
        problem=None,
    )


def _options(model: Path, folder: Path) -> CalibrationOptions:
    spec = inspect_model(model)
    last = tuple(layer.name for layer in layers_of(load_graph(model), spec) if layer.is_last)
    return CalibrationOptions(
        model=model,
        images=folder / "images",
        labels=folder / "labels",
        method=_METHOD,
        max_drop=MaxDrop(amount=MAX_DROP),
        keep_float=last,
    )
