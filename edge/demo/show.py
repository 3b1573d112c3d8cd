"""The whole product on synthetic cameras: clips, broker, subscriber, pipeline, and the account at the end."""

from __future__ import annotations

import contextlib
import importlib.resources
import json
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edge.config.load import load_pipeline
from edge.config.schema import MqttConfig
from edge.demo.broker import EmbeddedBroker
from edge.demo.cameras import SyntheticCamera, render_camera
from edge.demo.score import Score
from edge.demo.street.scene import Scene
from edge.demo.witness import Witness
from edge.errors import ConfigError
from edge.runtime.build import build_parts
from edge.runtime.report import RunReport
from edge.runtime.service import Service

__all__ = ["DemoHooks", "DemoOptions", "DemoReport", "find_problems", "frames_to_render", "run_demo"]

_ARRIVAL_TIMEOUT_S = 5.0
_DEVICE = "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """`broker` None: an embedded one. `folder` None: a temporary one, removed at the end.

    A folder that is kept also gets labelled still images of each camera, in `images/` and `labels/`.
    """

    cameras: int = 4
    duration_s: float = 20.0
    broker: MqttConfig | None = None
    folder: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoHooks:
    """What is told while it runs."""

    on_stage: Callable[[str], None]
    on_frame: Callable[[], None]
    on_tick: Callable[[RunReport], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The account at the end. `sent` and `received` are detection messages; `problems` is empty when all is well."""

    run: RunReport
    scores: dict[str, Score]
    sent: int
    received: int
    duplicates: int
    problems: tuple[str, ...]

    @property
    def score(self) -> Score:
        """All cameras together."""
        return sum(self.scores.values(), Score())

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        return {
            "run": self.run.as_json(),
            "precision": round(self.score.precision, 4),
            "recall": round(self.score.recall, 4),
            "sent": self.sent,
            "received": self.received,
            "duplicates": self.duplicates,
            "problems": list(self.problems),
        }


def frames_to_render(cameras: int) -> int:
    """Return how many frames `run_demo` renders before it starts."""
    return cameras * Scene.period_frames


def run_demo(options: DemoOptions, stop: threading.Event, hooks: DemoHooks) -> DemoReport:
    """Run the demo and return its account.

    Raises:
        EdgeError: if a part is missing or fails.
    """
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edge-demo-")))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: no folder to keep clips in: {error.strerror}") from None
        hooks.on_stage(f"rendering {options.cameras} cameras and encoding them to H.264")
        cameras = [
            render_camera(number, folder, on_frame=hooks.on_frame, is_sampled=options.folder is not None)
            for number in range(options.cameras)
        ]
        if options.broker is None:
            hooks.on_stage("starting the embedded MQTT broker")
            mqtt = stack.enter_context(EmbeddedBroker()).config()
        else:
            mqtt = options.broker
        hooks.on_stage("starting an independent subscriber (edge-deploy listen)")
        witness = stack.enter_context(Witness(mqtt, {camera.name: camera for camera in cameras}))
        pipeline = load_pipeline(_write_pipeline(folder, cameras, mqtt))
        parts = build_parts(pipeline)
        hooks.on_stage(
            f"running {len(cameras)} cameras with {parts.inference.engine.name} for {options.duration_s:g} s"
        )
        report = Service(parts).run(stop, duration_s=options.duration_s, on_tick=hooks.on_tick)
        witness.wait_for(report.inferred, timeout_s=_ARRIVAL_TIMEOUT_S)
    return DemoReport(
        run=report,
        scores={camera.name: witness.score_of(camera.name) for camera in cameras},
        sent=report.inferred,
        received=witness.received,
        duplicates=witness.duplicates,
        problems=find_problems(report, witness.received),
    )


def _write_pipeline(folder: Path, cameras: list[SyntheticCamera], mqtt: MqttConfig) -> Path:
    model = importlib.resources.files("edge.demo") / "model" / "traffic.onnx"
    content = {
        "version": 1,
        "device": _DEVICE,
        "model": {"onnx": str(model)},
        "batch": {"max_frames": len(cameras)},
        "streams": [{"id": camera.name, "uri": camera.path.name, "loop": True, "realtime": True} for camera in cameras],
        "mqtt": msgspec.to_builtins(mqtt),
        "publish": {"mode": "all"},
    }
    path = folder / "demo.yaml"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")  # JSON is YAML
    return path


def find_problems(report: RunReport, received: int) -> tuple[str, ...]:
    """Return what does not balance between the run and the messages that its subscriber received; () when all does."""
    problems = []
    if received == 0:
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
