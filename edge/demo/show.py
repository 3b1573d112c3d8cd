"""The whole product on synthetic cameras: clips, broker, subscriber, pipeline, and the account at the end.

Its model is calibrated for INT8 on frames of its own cameras and proven on others, or the reason why not is told.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import json
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edge.calibrate.histogram import Method
from edge.calibrate.table import Evidence, write_table
from edge.config.pipeline import load_pipeline
from edge.config.schema import MqttConfig
from edge.demo.broker import embedded_broker
from edge.demo.cameras import SyntheticCamera, lay_out_cameras
from edge.demo.subscriber import DemoSubscriber, Score
from edge.engine.kind import quick_kind, usable_kind
from edge.errors import ConfigError, EdgeError
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.quantize.calibrate import calibrate
from edge.quantize.subject import CalibrationOptions, MaxDrop, layers_of
from edge.runtime.pipeline.counters import RunReport
from edge.runtime.serve.parts import build_parts
from edge.runtime.serve.service import Service
from edge.types import Precision
from edge.writing import write_whole

__all__ = [
    "MAX_DROP",
    "DemoCalibration",
    "DemoHooks",
    "DemoOptions",
    "DemoReport",
    "calibrate_demo",
    "find_problems",
    "run_demo",
]

_ARRIVAL_TIMEOUT_S = 5.0
_DEVICE = "demo"
_PIPELINE, _TABLE = "demo.yaml", "traffic.calib.json"
MAX_DROP = 1.0
"""Promise, in mAP50-95 points: INT8 loses no more, or is not used."""

_METHOD = Method.MSE  # one pass and a proof; the search of `auto` takes minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """`folder` None: a temporary one, removed at the end.

    The folder also gets labelled still images of each camera, in `images/` and `labels/`. With `precision` INT8 the
    model is calibrated on them first.
    """

    cameras: int = 4
    duration_s: float = 20.0
    folder: Path | None = None
    precision: Precision = Precision.INT8


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoHooks:
    """Progress of the demo: each stage; work of so many steps (about) and each step of it; the running counts."""

    on_stage: Callable[[str], None]
    on_work: Callable[[str, int], None]
    on_step: Callable[[], None]
    on_tick: Callable[[RunReport], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCalibration:
    """Result of the calibration.

    Attributes:
        table: file name of the table beside the clips; None: INT8 is not to be used, because of `problem`.
        images: that ranges come from; others prove them.
        float_layers: how many layers stay in float: the last ones, whose outputs are boxes and scores.
    """

    seconds: float
    table: str | None = None
    evidence: Evidence | None = None
    images: int = 0
    float_layers: int = 0
    problem: str | None = None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The account at the end.

    Attributes:
        calibration: None where float was asked for.
        sent: detection messages, as in `received`.
        problems: empty when all is well.
    """

    run: RunReport
    calibration: DemoCalibration | None
    scores: dict[str, Score]
    sent: int
    received: int
    duplicates: int
    problems: tuple[str, ...]

    @property
    def score(self) -> Score:
        return sum(self.scores.values(), Score())

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run.as_json(),
            "calibration": None if self.calibration is None else self.calibration.as_json(),
            "precision": round(self.score.precision, 4),
            "recall": round(self.score.recall, 4),
            "sent": self.sent,
            "received": self.received,
            "duplicates": self.duplicates,
            "problems": list(self.problems),
        }


def run_demo(options: DemoOptions, stop: threading.Event, hooks: DemoHooks) -> DemoReport:
    """Raise `EdgeError` if a part is missing or fails."""
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edge-demo-")))
        _claim(folder)
        hooks.on_stage(f"laying out {options.cameras} cameras: clips of synthetic streets in H.264")
        cameras = lay_out_cameras(options.cameras, folder)
        calibration = calibrate_demo(folder, hooks) if options.precision is Precision.INT8 else None
        hooks.on_stage("starting the embedded MQTT broker")
        mqtt = stack.enter_context(embedded_broker())
        hooks.on_stage("starting an independent subscriber (edge-deploy listen)")
        subscriber = stack.enter_context(DemoSubscriber(mqtt, {camera.name: camera for camera in cameras}))
        table = None if calibration is None else calibration.table
        model = {"onnx": str(_model()), **({} if table is None else {"precision": "int8", "calibration": table})}
        pipeline = load_pipeline(_write_pipeline(folder, cameras, mqtt, model))
        parts = build_parts(pipeline)
        hooks.on_stage(
            f"running {len(cameras)} cameras in {parts.precision.value.upper()} with {parts.inference.engine.name} "
            f"for {options.duration_s:g} s"
        )
        report = Service(parts).run(stop, duration_s=options.duration_s, on_tick=hooks.on_tick)
        subscriber.wait_for(report.inferred, timeout_s=_ARRIVAL_TIMEOUT_S)
    return DemoReport(
        run=report,
        calibration=calibration,
        scores={camera.name: subscriber.score_of(camera.name) for camera in cameras},
        sent=report.inferred,
        received=subscriber.received,
        duplicates=subscriber.duplicates,
        problems=find_problems(report, subscriber.received),
    )


def _claim(folder: Path) -> None:
    """Make `folder`, or take that of an earlier demo: images beside those of others would be calibrated on."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = [] if (folder / _PIPELINE).exists() else sorted(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"{folder}: no folder to keep clips in: {error.strerror}") from None
    if others:
        raise ConfigError(f"{folder}: no demo has made its {others[0].name}", hint="name a new folder")
    (folder / _PIPELINE).touch()
    (folder / _TABLE).unlink(missing_ok=True)


def calibrate_demo(folder: Path, hooks: DemoHooks) -> DemoCalibration:
    """Calibrate the demo's model on the stills in `images/` and `labels/` of `folder`; write the table beside them."""
    hooks.on_stage("calibrating for INT8 on some of their frames, proving it on others")
    model, started = _model(), time.monotonic()
    try:
        layers = layers_of(load_graph(model), inspect_model(model))
        options = CalibrationOptions(
            model=model,
            images=folder / "images",
            labels=folder / "labels",
            method=_METHOD,
            max_drop=MaxDrop(amount=MAX_DROP),
            keep_float=tuple(layer.name for layer in layers if layer.is_last),
        )
        done = calibrate(options, quick_kind(usable_kind()), on_stage=hooks.on_work, on_step=hooks.on_step)
        write_table(folder / _TABLE, done.table)
    except EdgeError as error:  # the demo goes on in float, and its account says why
        hooks.on_stage(f"no INT8, going on in FP32: {error.problem}")
        return DemoCalibration(seconds=time.monotonic() - started, problem=error.problem)
    return DemoCalibration(
        table=_TABLE,
        evidence=done.table.evidence,
        images=done.observations.images,
        float_layers=len(done.table.keep_float),
        seconds=time.monotonic() - started,
    )


def _model() -> Path:
    return Path(str(importlib.resources.files("edge.demo") / "model" / "traffic.onnx"))


def _write_pipeline(folder: Path, cameras: list[SyntheticCamera], mqtt: MqttConfig, model: dict[str, str]) -> Path:
    content = {
        "version": 1,
        "device": _DEVICE,
        "model": model,
        "batch": {"max_frames": len(cameras)},
        "streams": [{"id": camera.name, "uri": camera.path.name, "loop": True, "realtime": True} for camera in cameras],
        "mqtt": msgspec.to_builtins(mqtt),
        "publish": {"mode": "all"},
    }
    path = folder / _PIPELINE
    write_whole(path, f"{json.dumps(content, indent=2)}\n".encode())  # JSON is YAML
    return path


def find_problems(report: RunReport, received: int) -> tuple[str, ...]:
    """Return what does not balance between the run and the messages that its subscriber received; () when all does."""
    problems = []
    if report.inferred == received == 0:
        problems.append("no frame was inferred in that time; on a busy machine give it more by --seconds")
    elif received == 0:
        problems.append("the subscriber received nothing")
    elif received != report.inferred:
        problems.append(f"{report.inferred} frames were published, {received} messages were received")
    problems += [
        f"{stream.stream}: {stream.unaccounted} frames are unaccounted for"
        for stream in report.streams
        if stream.unaccounted
    ]
    if not report.is_balanced and not problems:
        problems.append(f"the message counts do not balance: {dict(report.published)}")
    return tuple(problems)
