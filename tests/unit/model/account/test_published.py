"""Whole models against what their authors publish."""

from functools import partial

import pytest

from edge.model.account import account_of_model
from edge.model.graph import load_graph
from edge.types import Precision
from tests.support.published_yolo import yolo11, yolov5, yolov7
from tests.support.values import model_spec

SPEC = model_spec()


# GFLOPs of Ultralytics' model tables at 640, and the parameters that its summary prints of the fused models.
@pytest.mark.parametrize(
    ("make", "gflops", "parameters"),
    [(yolov5, 4.5, 1_867_405), (partial(yolov5, width=2), 16.5, 7_225_885)],
)
def test_operations_and_parameters_are_those_that_the_authors_count(make, gflops, parameters, tmp_path):
    account = account_of_model(load_graph(make(tmp_path / "n.onnx")), SPEC, batch=1, float_type=Precision.FP32)

    assert account.uncounted == ()
    assert account.operations / 1e9 == pytest.approx(gflops, rel=0.01)
    assert account.parameters == parameters


# Of the authors' tables: millions of parameters, GFLOPs at 640.
@pytest.mark.slow(reason="networks of up to 57 M weights")
@pytest.mark.parametrize(
    ("make", "gflops", "millions"),
    [
        (yolov7, 104.7, 36.9),
        *(
            (partial(yolo11, scale=scale), gflops, millions)
            for scale, gflops, millions in (
                ("n", 6.5, 2.6), ("s", 21.5, 9.4), ("m", 68.0, 20.1), ("l", 86.9, 25.3), ("x", 194.9, 56.9),
            )
        ),
    ],
)  # fmt: skip
def test_others_are_as_their_authors_round_them(make, gflops, millions, tmp_path):
    account = account_of_model(load_graph(make(tmp_path / "n.onnx")), SPEC, batch=1, float_type=Precision.FP32)

    assert account.uncounted == ()
    assert account.operations / 1e9 == pytest.approx(gflops, rel=0.01)
    assert account.parameters / 1e6 == pytest.approx(millions, abs=0.05)
