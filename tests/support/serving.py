"""A staged release, built and served as a device does it, in this process but for the builder's worker."""

import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edge.bundle.manifest import decode_manifest
from edge.device.device import Device
from edge.runtime.build.engine import Builder, make_in_workshop
from edge.runtime.build.handover import MADE, adopt
from edge.runtime.build.request import BuildResult
from edge.runtime.pipeline.counters import RunReport
from edge.runtime.serve.engine import open_release
from edge.runtime.serve.parts import build_parts
from edge.runtime.serve.service import Service

_DEADLINE_S = 120.0


def builder(
    device: Device, worker: str | None = None, *, deadline_s: float = _DEADLINE_S, stop: threading.Event | None = None
) -> Builder:
    """Return a builder, whose worker is a Python program or the real one."""
    more = {} if worker is None else {"worker": (sys.executable, "-c", worker)}
    return Builder(device=device, deadline_s=deadline_s, stop=stop or threading.Event(), **more)


def engine_folders(device: Device) -> list[str]:
    return sorted(os.listdir(device.layout.engines)) if device.layout.engines.exists() else []


def build_for_release(builder: Builder, release: str) -> BuildResult:
    """Build as the builder does, and take that over as edge-deploy does."""
    made, device = make_in_workshop(builder, release), builder.device
    return adopt(device, device.layout.workshop / MADE, made, decode_manifest(device.releases.manifest(release)))


def build(device: Device, release: str, *, worker: Sequence[str]) -> BuildResult:
    builder = Builder(device=device, deadline_s=_DEADLINE_S, stop=threading.Event(), worker=worker)
    return build_for_release(builder, release)


def serve(device: Device, release: str) -> tuple[list[dict[str, Any]], RunReport]:
    """Run a release to the end of its clip; return its messages and the report of the run."""
    pipeline, deployed = open_release(device.layout.release(release))
    parts = build_parts(pipeline, deployed=deployed)
    report = Service(parts).run(threading.Event(), duration_s=60)
    lines = Path(pipeline.config.publish.jsonl).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines], report
