"""Accounts of published networks, for figures that others have measured of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from edge.model.account import ModelAccount, account_of_model
from edge.model.graph import Graph, graph_from_bytes, load_graph
from edge.model.qdq import insert_qdq, quantizable_tensors
from edge.types import HeadFamily, ImageSize, ModelSpec, Precision, Preprocess
from tests.support.published_yolo import yolo11, yolov5, yolov7

MAKERS: dict[str, Callable[..., Path]] = {
    "yolov5s": functools.partial(yolov5, width=2),
    "yolov7": yolov7,
    **{f"yolo11{scale}": functools.partial(yolo11, scale=scale) for scale in "nsmlx"},
}


def published_account(model: str, *, size: int, precision: Precision, batch: int) -> ModelAccount:
    """Return the account of a network; in INT8 with pairs wherever they can be, the rest in FP16."""
    float_type = Precision.FP16 if precision is Precision.INT8 else precision
    graph = _graph(model, size, precision is Precision.INT8)
    return account_of_model(graph, _spec(size), batch=batch, float_type=float_type)


@functools.cache
def _graph(model: str, size: int, is_int8: bool) -> Graph:
    if is_int8:
        graph = _graph(model, size, False)
        made = insert_qdq(graph, _spec(size), ranges=dict.fromkeys(quantizable_tensors(graph), 1.0), keep_float=())
        return graph_from_bytes(made.model, model)
    with TemporaryDirectory() as folder:
        return load_graph(MAKERS[model](Path(folder) / "m.onnx", size=size))


def _spec(size: int) -> ModelSpec:
    return ModelSpec(
        path=Path("m.onnx"), name="m", sha256="0" * 64, family=HeadFamily.YOLOV8, input_name="images",
        output_name="output0", preprocess=Preprocess(size=ImageSize(width=size, height=size)), batch=None, labels=(),
        strides=(),
    )  # fmt: skip
