"""Releases that are really built, served and judged: each unit's own command, as a plain process."""

import json

import pytest

from edge.bundle.manifest import GoldenFrames, HealthLimits, Role
from edge.device.health import read_health
from edge.device.state import Phase
from edge.model.inspect import inspect_model
from edge.transport.pipe import LocalChannel
from tests.support import models
from tests.support.clips import write_clip
from tests.support.deployable import golden_files
from tests.support.real_units import RealUnits

pytestmark = pytest.mark.integration


@pytest.fixture
def real(device):
    yield device
    RealUnits(device.root).stop()


def _bundle(device, *, seed, sequence, streams=None):
    folder = device.directory / f"source-{sequence}"
    folder.mkdir()
    model = models.yolov8(folder / "model.onnx", seed=seed)
    clip = write_clip(folder / "clip.mp4", count=30)
    pipeline = {
        "version": 1,
        "device": "gate-01",
        "model": {"onnx": "model.onnx", "precision": "fp32"},
        "publish": {"mode": "all", "jsonl": str(folder / "out.jsonl")},
        "streams": streams or [{"id": "a", "uri": "clips/clip.mp4", "loop": True, "realtime": True}],
        "batch": {"max_frames": 2},
    }
    files = {
        "model.onnx": (Role.MODEL, model.read_bytes()),
        "clips/clip.mp4": (Role.CLIP, clip.read_bytes()),
        "pipeline.yaml": (Role.PIPELINE, json.dumps(pipeline).encode()),
        **golden_files(inspect_model(model)),
    }
    limits = HealthLimits(hold_s=3.0, deadline_s=12.0, min_rate_share=0.1, max_slowdown=100.0, min_available_bytes=0)
    return device.bundle_of(files, "gates", sequence=sequence, health=limits, golden_frames=GoldenFrames.OUTSIDE)


@pytest.mark.promised(reason="a push of a real release ends well or is undone")
def test_a_good_release_is_committed_and_one_without_frames_is_undone(real):
    connect = lambda: LocalChannel([*real.command, "real"])  # noqa: E731
    good = _bundle(real, seed=0, sequence=1)
    outcome = real.push(good, connect)
    assert outcome.result == "committed", outcome
    assert read_health(real.layout.health).release == good.manifest.release

    broken = _bundle(real, seed=0, sequence=2, streams=[{"id": "a", "uri": "rtsp://127.0.0.1:9/none"}])
    outcome = real.push(broken, connect)
    assert (outcome.result, outcome.exit_code) == ("rolled-back", 8), outcome
    assert real.device.releases.current() == good.manifest.release
    assert real.device.state().phase is Phase.IDLE
    assert read_health(real.layout.health).release == good.manifest.release
