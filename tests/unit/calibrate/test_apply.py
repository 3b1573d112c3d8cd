"""A table and its model become the Q/DQ model that runs; what does not belong together does not."""

import dataclasses

import msgspec
import numpy as np
import pytest

from edge.calibrate.lint import usable_table
from edge.calibrate.table import ModelId, TensorRange
from edge.errors import CalibrationError
from edge.model.graph import graph_from_bytes
from edge.model.inspect import ModelOverrides, inspect_model
from edge.types import ImageSize
from tests.support import models
from tests.support.tables import pairs, quantized_model, table_of, write_table_of


@pytest.fixture
def model(tmp_path):
    return models.yolov8(tmp_path / "m.onnx")


def test_scales_are_those_of_the_table_and_what_it_keeps_in_float_stays_in_float(tmp_path, model):
    whole = quantized_model(table_of(model), inspect_model(model))
    kept = whole.quantized_nodes[-1]
    path = write_table_of(tmp_path / "t", model, keep_float=(kept,))
    spec = inspect_model(model)

    table = usable_table(path, spec)
    made = quantized_model(table, spec)

    assert set(made.float_nodes) == {*whole.float_nodes, kept}
    scales = dict(pairs(made.model).values())
    assert scales["images"] == pytest.approx(table.tensors["images"].amax / 127, rel=1e-6)
    assert {name: scale * 127 for name, scale in scales.items()} == pytest.approx(dict(made.ranges), rel=1e-6)


def test_means_in_the_table_correct_the_biases_and_nothing_else(model):
    table, spec = table_of(model), inspect_model(model)
    seen = msgspec.structs.replace(table.tensors["images"], means=(0.5, 0.4, 0.3))
    plain = graph_from_bytes(quantized_model(table, spec).model, "plain")
    made = quantized_model(msgspec.structs.replace(table, tensors={**table.tensors, "images": seen}), spec)
    corrected = graph_from_bytes(made.model, "corrected")

    changed = [
        (one, other)
        for one, other in zip(plain.nodes, corrected.nodes, strict=True)
        if (one.op_type, one.inputs, one.outputs) != (other.op_type, other.inputs, other.outputs)
    ]
    assert len(changed) == 1  # only one convolution reads the image
    before, after = changed[0]
    assert before.inputs[:2] == after.inputs[:2]
    shift = plain.constant(before.inputs[2]) - corrected.constant(after.inputs[2])
    assert 0 < np.abs(shift).max() < 0.1


def test_a_table_says_whether_there_are_centres(model):
    table, spec = table_of(model), inspect_model(model)

    centred = quantized_model(msgspec.structs.replace(table, centred=True), spec)

    assert centred.centres
    assert not quantized_model(table, spec).centres
    assert centred.ranges == quantized_model(table, spec).ranges


def test_a_table_says_whether_centres_reach_behind_padding(model):
    table, spec = msgspec.structs.replace(table_of(model), centred=True), inspect_model(model)

    padded = quantized_model(msgspec.structs.replace(table, padded=True), spec)

    assert len(padded.centres) > len(quantized_model(table, spec).centres)
    assert "Pad" in {node.op_type for node in graph_from_bytes(padded.model, "padded").nodes}


def test_a_table_with_warnings_alone_is_usable(tmp_path, model):
    path = write_table_of(tmp_path / "t", model, model=None)  # lint: unbound

    assert usable_table(path, inspect_model(model)).model is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda table: {"model": ModelId(name="m", sha256="0" * 64)}, "model m 000000000000"),
        (
            lambda table: {"keep_float": ("/nowhere",)},
            'keep_float names nodes that the model does not have: "/nowhere"',
        ),
        (lambda table: {"tensors": {**table.tensors, "images": TensorRange(amax=np.nan, method="x")}}, '"images"'),
        (lambda table: {"tensors": {"images": table.tensors["images"]}}, "would run in float"),
    ],
    ids=["other-model", "unknown-nodes", "nan", "coverage"],
)
def test_an_error_of_lint_is_told_with_the_table_and_its_fix(tmp_path, model, change, problem):
    path = write_table_of(tmp_path / "t", model, **change(table_of(model)))

    with pytest.raises(CalibrationError) as caught:
        usable_table(path, inspect_model(model))

    assert str(caught.value).startswith(f"{path}: ")
    assert problem in caught.value.problem
    assert caught.value.hint


def test_of_many_errors_it_is_said_first_that_the_model_is_another_one(tmp_path, model):
    other = models.yolov8(tmp_path / "other.onnx", seed=1)
    ranges = {"images": TensorRange(amax=255.0, method="x"), "b": TensorRange(amax=np.inf, method="x")}
    path = write_table_of(tmp_path / "a t", model, tensors=ranges)

    with pytest.raises(CalibrationError, match=rf"t: .*model m .*\(3 more: edge-deploy table lint '{path}' --model"):
        usable_table(path, inspect_model(other))


def test_a_table_of_another_input_size_is_refused(tmp_path):
    model = models.yolov8(tmp_path / "m.onnx", dynamic_size=True)
    small, large = (ModelOverrides(input_size=ImageSize(width=side, height=side)) for side in (96, 128))
    path = write_table_of(tmp_path / "t", model, overrides=small)
    spec = inspect_model(model, overrides=small)

    usable_table(path, spec)
    other = dataclasses.replace(spec, preprocess=dataclasses.replace(spec.preprocess, size=large.input_size))
    with pytest.raises(CalibrationError, match=r"another preprocess than the model's: size \[96, 96\] .*\[128, 128\]"):
        usable_table(path, other)


def test_a_model_that_carries_pairs_takes_no_table(tmp_path, model):
    path = write_table_of(tmp_path / "t", model)
    (tmp_path / "a q.onnx").write_bytes(quantized_model(table_of(model), inspect_model(model)).model)

    with pytest.raises(CalibrationError, match=r"q\.onnx .*Q/DQ.*table import '.*/a q\.onnx' -o"):
        usable_table(path, inspect_model(tmp_path / "a q.onnx"))
