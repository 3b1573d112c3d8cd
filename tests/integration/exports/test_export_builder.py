"""Exports of today in the real builder of TensorRT for RTX, float and Q/DQ."""

from pathlib import Path

import pytest

from edge.calibrate.table import write_table
from edge.model.inspect import inspect_model
from tests.integration.tensorrt.test_rtx_builder import built, job
from tests.support.exports import yolov7, yolox
from tests.support.exports.build import WHOLE, build
from tests.support.tables import table_of

pytestmark = pytest.mark.slow(reason="builds many engines")
OFTEN = {"default", "dynamic", "e2e"}


@pytest.mark.parametrize("family", sorted({one.family for one in WHOLE}))
def test_the_real_builder_of_tensorrt_takes_every_variant(tmp_path, family):
    """In every precision where a family is new to it; then in INT8, which has all the others' nodes."""
    jobs = []
    for one in (one for one in WHOLE if one.family == family and one.name != "nms"):
        model = build(one, tmp_path / f"{one.id}.onnx")
        table = tmp_path / f"{one.id}.json"
        write_table(table, table_of(model))
        if one.name in OFTEN:
            jobs += [job(model, None, "fp32"), job(model, None, "fp16")]
        jobs.append(job(model, table, "int8"))

    for asked, made in zip(jobs, built(*jobs), strict=True):
        assert (asked["model"], asked["precision"], made["error"]) == (asked["model"], asked["precision"], None)
        assert made["batch"] == inspect_model(Path(asked["model"])).batch
        assert asked["precision"] != "int8" or made["int8_convolutions"] > 10


@pytest.mark.parametrize("batch", [1, None], ids=["one", "dynamic"])
@pytest.mark.parametrize(("exporter", "convolutions"), [(yolox, 60), (yolov7, 50)], ids=["yolox", "yolov7"])
def test_the_real_builder_of_tensorrt_takes_yolov7_and_x(tmp_path, exporter, convolutions, batch):
    model, table = exporter.build(tmp_path / "m.onnx", batch=batch), tmp_path / "t.json"
    write_table(table, table_of(model))

    made = built(job(model, None, "fp32"), job(model, None, "fp16"), job(model, table, "int8"))

    assert [one["error"] for one in made] == [None] * 3
    assert made[2]["int8_convolutions"] > convolutions


def test_a_builder_without_what_an_nms_inside_needs_names_the_node(tmp_path):
    model = build(next(one for one in WHOLE if one.id == "v8-nms"), tmp_path / "m.onnx")

    (made,) = built(job(model, None, "fp32"))

    assert 'NonZero "/NonZero"' in made["error"]
    assert "nms=True" in made["hint"]
