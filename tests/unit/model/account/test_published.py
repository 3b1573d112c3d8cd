"""Whole models against what their authors publish."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest

from edge.model.account import account_of_model
from edge.model.graph import load_graph
from edge.types import HeadFamily, ImageSize, ModelSpec, Precision, Preprocess
from tests.support.published_yolo import yolo11, yolov5, yolov7, yolov8n

SPEC = ModelSpec(
    path=Path("n.onnx"), name="n", sha256="0" * 64, family=HeadFamily.YOLOV8, input_name="images",
    output_name="output0", preprocess=Preprocess(size=ImageSize(width=640, height=640)), batch=None, labels=(),
    strides=(),
)  # fmt: skip


# GFLOPs of Ultralytics' model tables at 640, and the parameters that its summary prints of the fused models.
@pytest.mark.parametrize(
    ("make", "gflops", "parameters"),
    [(yolov8n, 8.7, 3_151_904), (yolov5, 4.5, 1_867_405), (partial(yolov5, width=2), 16.5, 7_225_885)],
)
def test_operations_and_parameters_are_those_that_the_authors_count(make, gflops, parameters, tmp_path):
    account = account_of_model(load_graph(make(tmp_path / "n.onnx")), SPEC, batch=1, float_type=Precision.FP32)

    assert account.uncounted == ()
    assert account.operations / 1e9 == pytest.approx(gflops, rel=0.01)
    assert account.parameters == parameters


# Of the authors' tables: millions of parameters, GFLOPs at 640.
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


def test_a_frame_of_yolov8n_in_layers(tmp_path):
    graph = load_graph(yolov8n(tmp_path / "n.onnx"))
    one = account_of_model(graph, SPEC, batch=1, float_type=Precision.FP16)
    eight = account_of_model(graph, SPEC, batch=8, float_type=Precision.FP16)

    assert [layer.op_type for layer in one.layers].count("Conv") == 64
    assert not [layer for layer in one.layers if layer.op_type in ("Concat", "Split", "Sigmoid")][:-1]
    assert eight.operations == 8 * one.operations
    assert eight.weight_bytes == one.weight_bytes
    assert eight.intensity > one.intensity
    assert dataclasses.replace(one, layers=one.layers[:1]).parameters == 16 * 27 + 16
