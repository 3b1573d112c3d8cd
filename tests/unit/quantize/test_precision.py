"""What a pipeline file may ask of a model and its calibration table, how the rest is refused; what a builder gets."""

import dataclasses
import hashlib
import json

import msgspec
import numpy as np
import pytest

from edge.calibrate.table import ModelId, TensorRange, read_table, write_table
from edge.config.pipeline import load_pipeline
from edge.engine.kind import QdqForm
from edge.engine.kinds import choose_kind
from edge.engine.section import read_model
from edge.errors import ConfigError
from edge.model import graph
from edge.model.graph import graph_from_bytes
from edge.model.inspect import ModelOverrides, inspect_model
from edge.model.qdq import insert_qdq
from edge.quantize.forms import Forms
from edge.quantize.precision import ComputedPrecision, precision_of
from edge.runtime.build.worker import Job, main
from edge.types import ImageSize, Precision
from tests.support import models
from tests.support.tables import quantized_model, table_of, write_table_of


@pytest.fixture
def model(tmp_path):
    return models.yolov8(tmp_path / "m.onnx")


@pytest.fixture
def choose(tmp_path, model):
    (tmp_path / "clip.mp4").write_bytes(b"never opened")

    def choose_for(**about_model):
        lines = [f"  {key}: {json.dumps(value)}" for key, value in {"onnx": "m.onnx", **about_model}.items()]
        text = ["version: 1", "model:", *lines, "streams: [{id: a, uri: clip.mp4}]", "publish: {jsonl: '-'}"]
        (tmp_path / "p.yaml").write_text("\n".join(text))
        pipeline = load_pipeline(tmp_path / "p.yaml")
        return precision_of(pipeline, read_model(pipeline))

    return choose_for


def test_int8_runs_the_model_with_the_ranges_of_the_table(tmp_path, model, choose):
    path, table = write_table_of(tmp_path / "t.json", model), table_of(model)
    ranges = {name: tensor.amax for name, tensor in table.tensors.items()}
    spec = inspect_model(model)

    found = choose(precision="int8", calibration="t.json")

    assert found.table == table
    assert (
        Forms(spec, found.table).qdq_model(QdqForm()).model
        == insert_qdq(model, spec, ranges=ranges, keep_float=()).model
    )
    assert found.precision is Precision.INT8
    assert found.calibration == hashlib.sha256(path.read_bytes()).hexdigest()[:8]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_table_is_not_read_for_another_precision(tmp_path, choose, precision):
    (tmp_path / "t.json").write_text("no table")

    assert choose(precision=precision, calibration="t.json") == ComputedPrecision(precision=Precision(precision))


def test_int8_of_a_float_model_without_a_table_is_refused(model, choose):
    with pytest.raises(ConfigError) as caught:
        choose(precision="int8")

    assert f"p.yaml:4: model.precision: int8 needs a calibration table, {model} is a float model; add model." in str(
        caught.value
    )


NAN = TensorRange(amax=np.nan, method="x")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda table: {"model": ModelId(name="other", sha256="0" * 64)},
            "model other 0000.*",
        ),
        (lambda table: {"tensors": {**table.tensors, "images": NAN}}, '"images": the scale is not a number.*; calibr'),
    ],
    ids=["other-model", "bad-scale"],
)
def test_a_table_that_does_not_fit_is_refused_with_its_line_and_what_to_do(tmp_path, model, choose, change, expected):
    write_table_of(tmp_path / "t.json", model, **change(table_of(model)))

    with pytest.raises(ConfigError, match=rf"p\.yaml:5: model\.calibration: .*t\.json: .*{expected}"):
        choose(precision="int8", calibration="t.json")


def test_the_input_size_that_the_pipeline_states_is_that_of_the_table_or_the_table_is_refused(tmp_path, choose):
    model = models.yolov8(tmp_path / "any-size.onnx", size=128, dynamic_size=True)
    stated = ModelOverrides(input_size=ImageSize(width=128, height=128))
    table = table_of(model, overrides=stated)
    about = {"onnx": model.name, "precision": "int8", "calibration": "t.json", "input_size": [128, 128]}
    write_table(tmp_path / "t.json", table)

    assert choose(**about).table == table

    other = dataclasses.replace(inspect_model(model, overrides=stated).preprocess, size=ImageSize(width=96, height=96))
    changed = {"preprocess": other.as_json(), "preprocess_sha256": other.sha256}
    write_table(tmp_path / "t.json", msgspec.structs.replace(table, **changed))
    with pytest.raises(
        ConfigError, match=r"calibration: .*t\.json: .*another preprocess.*size \[96, 96\] .*\[128, 128\]"
    ):
        choose(**about)


@pytest.fixture
def carrying_pairs(tmp_path, model):
    write_table_of(tmp_path / "t.json", model)
    (tmp_path / "q.onnx").write_bytes(quantized_model(table_of(model), inspect_model(model)).model)
    return "q.onnx"


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_a_model_that_carries_pairs_runs_in_int8_as_it_is(choose, carrying_pairs, precision):
    assert choose(onnx=carrying_pairs, precision=precision) == ComputedPrecision(precision=Precision.INT8)


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_a_model_that_carries_pairs_takes_no_table(choose, carrying_pairs, precision):
    with pytest.raises(ConfigError, match=r"p\.yaml:5: model\.calibration: .*Q/DQ.*table import"):
        choose(onnx=carrying_pairs, precision=precision, calibration="t.json")


def test_a_build_reads_the_model_once(tmp_path, model, choose, monkeypatch):
    write_table_of(tmp_path / "t.json", model)
    choose(precision="int8", calibration="t.json")  # writes the pipeline
    (tmp_path / "out").mkdir()
    reads, read = [], graph.read_file
    monkeypatch.setattr(graph, "read_file", lambda path, **more: (reads.append(path), read(path, **more))[1])

    kind = choose_kind("auto").facts.name
    job = Job(pipeline=str(tmp_path / "p.yaml"), kind=kind, manifest=None, folder=str(tmp_path / "out"))
    assert main(job.encode()) == 0

    assert reads == [model]


def biases(content):
    graph = graph_from_bytes(content, "test")
    convolutions = [node for node in graph.nodes if node.op_type == "Conv" and len(node.inputs) > 2]
    return {node.outputs[0]: graph.constant(node.inputs[2]) for node in convolutions}


def test_means_that_are_given_correct_the_biases_of_what_reads_them(tmp_path):
    path = models.yolov8(tmp_path / "model.onnx")
    write_table(tmp_path / "table.json", table_of(path))
    forms, form = Forms(inspect_model(path), read_table(tmp_path / "table.json")), QdqForm()
    plain = biases(forms.qdq_model(form).model)

    table = read_table(tmp_path / "table.json")
    corrected = biases(forms.by(table, means={"images": (0.3, 0.5, 0.7)}).qdq_model(form).model)

    changed = [name for name in plain if not np.array_equal(plain[name], corrected[name])]
    assert len(changed) == 1
