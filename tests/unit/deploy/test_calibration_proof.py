"""When a promise counts as kept: chance has its say, but no more than one standard error of it."""

import pytest

from edge.deploy.calibration.proof import Proof


def proof(drop, uncertainty):
    return Proof(metric="mAP50-95", images=64, float_=0.5, int8=0.5 - drop / 100, uncertainty=uncertainty)


@pytest.mark.parametrize(
    ("drop", "uncertainty", "is_kept"),
    [
        (-1.0, 0.0, True),
        (0.4, 0.0, True),
        (0.6, 0.0, False),
        (0.9, 0.005, True),  # 0.9 - 0.5 is within the promise of 0.5
        (1.1, 0.005, False),
        (0.6, None, False),
        (0.4, None, True),
    ],
)
def test_the_drop_may_exceed_the_promise_by_one_standard_error(drop, uncertainty, is_kept):
    assert proof(drop, uncertainty).keeps(0.5) is is_kept


def test_the_drop_is_in_points():
    assert proof(1.25, None).drop == pytest.approx(1.25)
