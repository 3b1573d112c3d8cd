"""When a promise counts as kept."""

import pytest

from edge.quantize.make_table import MaxDrop
from edge.quantize.make_table.promise import Promise
from edge.quantize.make_table.proof import Proof


def proof(drop, uncertainty):
    return Proof(metric="mAP50-95", images=64, float_=0.5, int8=0.5 - drop / 100, uncertainty=uncertainty)


@pytest.mark.parametrize(("drop", "is_kept"), [(-1.0, True), (0.4, True), (0.6, False), (0.9, False)])
@pytest.mark.parametrize("uncertainty", [None, 0.0, 0.01])
def test_a_promise_is_about_what_was_measured_whatever_chance_may_have_done(drop, uncertainty, is_kept):
    assert Promise(MaxDrop(amount=0.5)).is_kept(proof(drop, uncertainty)) is is_kept


@pytest.mark.parametrize(("drop", "is_kept"), [(1.4, True), (1.6, False)])  # points; the float model reaches 50
def test_a_relative_promise_is_about_what_the_float_model_reaches(drop, is_kept):
    assert Promise(MaxDrop(amount=3.0, is_relative=True)).is_kept(proof(drop, None)) is is_kept


def test_the_drop_is_in_points():
    assert proof(1.25, None).drop == pytest.approx(1.25)
