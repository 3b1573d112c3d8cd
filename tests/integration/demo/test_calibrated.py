"""The demo's calibration on stills of its own cameras."""

import hashlib
from pathlib import Path

import pytest

from edge.demo import calibrated
from edge.demo.calibrated import calibrate_demo
from edge.demo.cameras import SIZE, sample_step
from edge.demo.samples import write_sample
from edge.demo.street.scene import Scene

pytestmark = pytest.mark.integration

MODEL = Path(__file__).parents[3] / "edge" / "demo" / "model" / "traffic.onnx"


@pytest.fixture(scope="module")
def stills(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stills")
    scene = Scene(1, SIZE)
    for index in range(0, scene.period_frames, 30):
        write_sample(folder, f"still-{index:03d}", *scene.frame(index))
    return folder


def _calibrated(folder):
    steps = []
    done = calibrate_demo(MODEL, folder, on_work=lambda name, count: None, on_step=lambda: steps.append(1))
    assert steps
    return done


def test_a_promise_that_is_not_kept_leaves_no_table_and_says_why(stills, monkeypatch):
    monkeypatch.setattr(calibrated, "MAX_DROP", -100.0)

    done = _calibrated(stills)

    assert done.table is None
    assert done.evidence is None
    assert "INT8 loses" in done.problem
    assert not (stills / "traffic.calib.json").exists()


@pytest.mark.parametrize("cameras", [1, 2, 4, 8])
def test_stills_are_enough_for_every_number_of_cameras(cameras):
    assert len(range(0, Scene.period_frames, sample_step(cameras))) >= 16


def test_no_two_stills_are_equal(stills):
    images = [path.read_bytes() for path in (stills / "images").iterdir()]

    assert len({hashlib.sha256(image).digest() for image in images}) == len(images) == 12
