"""A pipeline that asks for more than its engine does, as a person and a subscriber are told of it."""

import json
import subprocess
import sys

import pytest

from tests.support.clips import write_clip
from tests.support.demo_model import MODEL

pytestmark = pytest.mark.slow_but(
    "test_it_is_told_with_figures_and_runs_all_the_same", reason="further services over real models"
)
FPS = 1000.0  # of each of eight streams: more than any machine that tests run on does with a detector of this size


@pytest.fixture
def model():
    return MODEL


@pytest.fixture
def streams(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", count=30)
    return [{"id": f"s{i}", "uri": str(clip), "realtime": True, "max_fps": FPS} for i in range(8)]


def test_it_is_told_with_figures_and_runs_all_the_same(run, streams):
    stats, told = run.complete(streams)

    assert stats["balanced"]
    assert stats["inferred"] > 0
    assert "reason=8000.0 fps" in told
    reasons = [one["reason"] for one in run.messages("edge.state/1") if one.get("reason")]
    assert any("8000.0 fps" in reason for reason in reasons), reasons[:3]


def test_it_is_refused_where_the_pipeline_file_asks_for_that(run, streams):
    _, told = run.complete(streams, overload={"at_start": "refuse"}, expected=2)

    assert "8000.0 fps" in told


def test_doctor_measures_beforehand(run, streams):
    path = run.write([{**stream, "max_fps": 0.01} for stream in streams])

    def doctor():
        command = [sys.executable, "-m", "edge.cli.edge_runtime", "doctor", "--json", "--pipeline", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return json.loads(done.stdout)["engine of p.yaml"]

    found = doctor()
    assert found["here"]
    assert "0.08 fps" in found["detail"]
    run.write(streams)
    found = doctor()
    assert not found["here"]
    assert not found["needed"]
    assert "8000.0 fps" in found["detail"]
