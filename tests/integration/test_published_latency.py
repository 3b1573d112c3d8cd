"""Bounds against what others have measured on a board: nothing published is faster than its bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.model.account import account_of_model
from edge.model.graph import graph_from_bytes, load_graph
from edge.model.qdq import insert_qdq, quantizable_tensors
from edge.roofline.bound import bound_of_model
from edge.roofline.machines import find_machine
from edge.types import HeadFamily, ImageSize, ModelSpec, Precision, Preprocess
from tests.support.published_yolo import yolov5

SPEC = ModelSpec(
    path=Path("s.onnx"), name="s", sha256="0" * 64, family=HeadFamily.YOLOV5, input_name="images",
    output_name="output0", preprocess=Preprocess(size=ImageSize(width=672, height=672)), batch=None, labels=(),
    strides=(),
)  # fmt: skip
# NVIDIA-AI-IOT/cuDLA-samples, README: YOLOv5s at 672 in INT8 on the GPU of an AGX Orin, milliseconds by batch.
PUBLISHED_MS = {1: 1.82, 2: 2.91, 4: 4.99, 8: 9.19, 16: 16.87}


@pytest.fixture(scope="module")
def in_int8(tmp_path_factory):
    graph = load_graph(yolov5(tmp_path_factory.mktemp("s") / "s.onnx", width=2, size=672))
    made = insert_qdq(graph, SPEC, ranges=dict.fromkeys(quantizable_tensors(graph), 1.0), keep_float=())
    return graph_from_bytes(made.model, "s")


@pytest.mark.parametrize("batch", PUBLISHED_MS)
def test_yolov5s_on_agx_orin_is_slower_than_its_bound(in_int8, batch):
    account = account_of_model(in_int8, SPEC, batch=batch, float_type=Precision.FP16)
    bound = bound_of_model(account, find_machine("agx-orin-64gb"))

    assert 0 < bound.floor_s < bound.least_s < PUBLISHED_MS[batch] / 1e3
    assert bound.least_s > PUBLISHED_MS[batch] / 1e3 / 10  # and not so far below that it says nothing
