"""The demo's calibration on stills of its own cameras."""

import pytest

from edge.demo import show
from edge.demo.cameras import lay_out_cameras
from edge.demo.show import DemoHooks, calibrate_demo

pytestmark = [pytest.mark.integration, pytest.mark.slow(reason="runs the demo whole")]


@pytest.fixture(scope="module")
def stills(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stills")
    lay_out_cameras(1, folder)
    return folder


def _calibrated(folder):
    steps = []
    hooks = DemoHooks(
        on_stage=lambda text: None,
        on_work=lambda name, count: None,
        on_step=lambda: steps.append(1),
        on_tick=lambda report: None,
    )
    done = calibrate_demo(folder, hooks)
    assert steps
    return done


def test_a_promise_that_is_not_kept_leaves_no_table_and_says_why(stills, monkeypatch):
    monkeypatch.setattr(show, "MAX_DROP", -100.0)

    done = _calibrated(stills)

    assert done.table is None
    assert done.evidence is None
    assert "INT8 loses" in done.problem
    assert not (stills / "traffic.calib.json").exists()
