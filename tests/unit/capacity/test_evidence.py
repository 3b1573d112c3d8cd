"""The evidence: our accounts in it are right, nothing published beats its bound, and how well it predicts itself."""

import functools
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from edge.capacity.platform import MeasuredEngine, evidence, factors_of
from edge.model.account import account_of_model
from edge.model.graph import graph_from_bytes, load_graph
from edge.model.qdq import insert_qdq, quantizable_tensors
from edge.roofline.bound import bound_of_model
from edge.roofline.machines import find_machine
from edge.types import Precision
from tests.support.evidence_page import left_one_out, rest_lines
from tests.support.published_yolo import yolo11, yolov5, yolov7
from tests.support.values import model_spec

ROOT = Path(__file__).parents[3]
ROWS = evidence().engine
NANO, NX, AGX = "orin-nano-8gb-super", "orin-nx-16gb", "agx-orin-64gb"

MAKERS = {
    "yolov5s": functools.partial(yolov5, width=2),
    "yolov7": yolov7,
    **{f"yolo11{scale}": functools.partial(yolo11, scale=scale) for scale in "nsmlx"},
}


@functools.cache
def graph_of(model, size, is_int8):
    if is_int8:
        graph = graph_of(model, size, False)
        ranges = dict.fromkeys(quantizable_tensors(graph), 1.0)
        return graph_from_bytes(insert_qdq(graph, model_spec(side=size), ranges=ranges, keep_float=()).model, model)
    with TemporaryDirectory() as folder:
        return load_graph(MAKERS[model](Path(folder) / "m.onnx", size=size))


def published_account(model, *, size, precision, batch):
    """Return the account of a network; in INT8 with pairs wherever they can be, the rest in FP16."""
    is_int8 = precision is Precision.INT8
    float_type = Precision.FP16 if is_int8 else precision
    graph = graph_of(model, size, is_int8)
    return account_of_model(graph, model_spec(side=size), batch=batch, float_type=float_type)


def of_network(model, *values):
    """A row that is asked in `make test` if its network is small."""
    large = pytest.mark.slow(reason="networks of up to 57 M weights")
    return pytest.param(*values, marks=() if model in ("yolo11n", "yolov5s") else large)


def called(row):
    return f"{row.model}-{row.precision.value}-{row.batch}-{row.machine}"


@pytest.mark.parametrize("row", [of_network(row.model, row) for row in ROWS], ids=called)
def test_an_account_in_the_file_is_what_the_published_network_gives_and_the_figure_is_slower(row):
    account = published_account(row.model, size=row.size_px, precision=row.precision, batch=row.batch)
    bound = bound_of_model(account, find_machine(row.machine))

    assert len(bound.layers) == row.layers
    assert 1e3 * bound.least_s == pytest.approx(row.least_ms, abs=1e-4)
    assert 1e3 * bound.floor_s == pytest.approx(row.floor_ms, abs=1e-4)
    assert bound.floor_s < bound.least_s < row.batch_ms / 1e3


# Figures that are not used: FP32 as TensorRT computes it, which is TF32, so no faster than FP16; and other pipelines.
@pytest.mark.parametrize(
    ("model", "precision", "batch", "machine", "batch_ms"),
    [
        *(
            of_network("yolo11" + s, "yolo11" + s, "fp16", 1, NANO, ms)
            for s, ms in zip("nsmlx", (7.60, 13.29, 28.21, 35.59, 67.32), strict=True)
        ),
        of_network("yolo11n", "yolo11n", "fp16", 1, NX, 8.05),
        of_network("yolo11n", "yolo11n", "int8", 1, AGX, 2.22),
        *(of_network("yolov7", "yolov7", "fp16", 1, AGX, 1e3 / fps) for fps in (126, 124, 120)),
        *(of_network("yolov7", "yolov7", "int8", 1, AGX, 1e3 / fps) for fps in (180, 175, 128)),
        *(of_network("yolov7", "yolov7", "fp16", 16, AGX, 16e3 / fps) for fps in (162, 145, 135)),
        *(of_network("yolov7", "yolov7", "int8", 16, AGX, 16e3 / fps) for fps in (264, 135)),
    ],
)
def test_what_is_left_out_is_slower_than_its_bound_too(model, precision, batch, machine, batch_ms):
    account = published_account(model, size=640, precision=Precision(precision), batch=batch)
    bound = bound_of_model(account, find_machine(machine))

    assert 1e3 * bound.floor_s < 1e3 * bound.least_s < batch_ms


def made(least_ms, layers, *, of_least, layer_ms, model="m"):
    return MeasuredEngine(
        model=model, size_px=640, precision=Precision.FP16, batch=1, machine="x", least_ms=least_ms, floor_ms=0.1,
        layers=layers, batch_ms=of_least * least_ms + layer_ms * layers, source="s",
    )  # fmt: skip


def test_factors_are_those_that_figures_were_made_by():
    rows = [made(least, layers, of_least=2.5, layer_ms=0.03) for least, layers in ((1, 50), (3, 70), (9, 200), (2, 90))]
    found = factors_of(rows)

    assert (found.of_least, found.layer_s) == (pytest.approx(2.5), pytest.approx(3e-5))
    assert found.batch_s(0.004, 100) == pytest.approx(0.013)
    assert left_one_out(rows) == pytest.approx([0.0] * 4)


def test_a_row_that_is_left_out_does_not_predict_itself():
    rows = [
        made(least, layers, of_least=2.5, layer_ms=0.03, model=f"m{layers}")
        for least, layers in ((1, 50), (3, 70), (9, 200))
    ]
    odd = made(5, 80, of_least=5, layer_ms=0.06, model="odd")

    assert left_one_out([*rows, odd])[-1] == pytest.approx(-0.5)
    assert left_one_out([*rows, odd, odd], is_whole_model=True)[-1] == pytest.approx(-0.5)
    assert left_one_out([*rows, odd, made(5, 80, of_least=5, layer_ms=0.06)])[3] > -0.45


def test_the_evidence_predicts_what_is_left_out_of_it():
    errors = [abs(error) for error in left_one_out(ROWS)]
    strangers = [abs(error) for error in left_one_out(ROWS, is_whole_model=True)]

    assert statistics.mean(errors) < 0.14
    assert statistics.mean(strangers) < 0.17
    assert max(strangers) < 0.55
    assert all(error > -0.35 for error in left_one_out(ROWS))  # nothing takes half as long again as predicted


def test_the_page_has_the_factors_and_errors_that_follow_from_the_file():
    page = (ROOT / "docs/sizing.md").read_text(encoding="utf-8")

    for line in rest_lines():
        assert line in page, f"python -m tests.support.evidence_page: {line}"


def test_every_figure_has_a_source_that_is_explained():
    host = evidence().host
    costs = (host.frame_ms, host.decode_ms, host.memory_mib, host.message_bytes)

    assert {one.source for one in (*ROWS, *costs)} <= set(evidence().sources)
