"""One model in the forms that engines ask for: read once, each made once."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from edge.calibrate.cache import parse_cache
from edge.engine.kind import QdqForm
from edge.errors import CalibrationError, ModelError
from edge.model.file import read_model_file
from edge.model.graph import graph_from_bytes
from edge.model.inspect import inspect_file, inspect_model
from edge.model.qdq.half import float16_model
from edge.quantize import forms as room
from edge.quantize.forms import Forms
from tests.support import models
from tests.support.tables import table_of

ALL = [QdqForm(float_type=kind, weights=weights) for kind in ("float32", "float16") for weights in ("int8", "float")]


@pytest.fixture
def model(tmp_path):
    return models.yolov8(tmp_path / "m.onnx", batch=1)


@pytest.fixture
def reads(monkeypatch):
    """The ONNX files that were read, each time."""
    found, read = [], Path.read_bytes

    def counted(path):
        found.extend([path] if path.suffix == ".onnx" else [])
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    return found


@pytest.fixture
def made(monkeypatch):
    """The forms that were made, each time."""
    found = []
    for name in ("quantized_model", "float16_model"):
        make = getattr(room, name)
        monkeypatch.setattr(room, name, lambda *a, _m=make, _n=name, **k: (found.append(_n), _m(*a, **k))[1])
    return found


def test_the_file_is_read_once_and_each_form_made_once(model, reads, made):
    table = table_of(model)
    reads.clear()

    file = read_model_file(model)
    forms = Forms(inspect_file(file), table, file=file)
    for _ in range(2):
        for form in ALL:
            assert forms.qdq_model(form) is forms.qdq_model(form)
        assert forms.float_model(is_float16=True) is forms.float_model(is_float16=True)
        assert forms.float_model() == file.content
    forms.by(msgspec.structs.replace(table, method="other")).qdq_model(QdqForm())

    assert len(reads) == 1
    assert sorted(made) == ["float16_model", *["quantized_model"] * (len(ALL) + 1)]


def test_without_a_file_it_is_read_when_something_is_asked_for(model, reads):
    spec, table = inspect_model(model), table_of(model)
    reads.clear()

    forms = Forms(spec, table)
    assert reads == []
    forms.float_model()
    forms.qdq_model(QdqForm())

    assert reads == [model]


def test_forms_differ_in_what_they_say(model):
    forms = Forms(inspect_model(model), table_of(model))
    bytes_of = {form: len(forms.qdq_model(form).model) for form in ALL}
    graphs = {form: graph_from_bytes(forms.qdq_model(form).model, "test") for form in ALL}

    for form, graph in graphs.items():
        casts = [node for node in graph.nodes if node.op_type == "Cast"]
        assert bool(casts) == (form.float_type == "float16")
        behind_weights = {
            getattr(graph.producer(node.inputs[0]), "op_type", None)
            for node in graph.nodes
            if node.op_type == "DequantizeLinear" and not graph.is_varying(node.outputs[0])
        }
        assert behind_weights == ({"QuantizeLinear"} if form.weights == "float" else {None})
    assert bytes_of[QdqForm(weights="float")] > bytes_of[QdqForm()]
    assert forms.float_model(is_float16=True) == float16_model(forms.graph, "m")


def test_a_file_that_changed_meanwhile_is_refused(model, tmp_path):
    spec = inspect_model(model)
    models.yolov8(model, batch=1, seed=1)

    with pytest.raises(ModelError, match=r"m\.onnx: has changed since it was looked at; run the command again"):
        Forms(spec).float_model()


def test_a_model_that_carries_pairs_is_what_it_is_in_every_form(model, tmp_path):
    path = tmp_path / "q.onnx"
    path.write_bytes(Forms(inspect_model(model), table_of(model)).qdq_model(QdqForm()).model)

    forms = Forms(inspect_model(path))

    assert {forms.qdq_model(form).model for form in ALL} == {path.read_bytes()}
    assert forms.qdq_model(QdqForm()).mac_share_int8 == 1.0
    with pytest.raises(ModelError, match="carries Q/DQ pairs"):
        forms.float_model(is_float16=True)


def test_int8_of_a_float_model_without_a_table_is_refused(model):
    forms = Forms(inspect_model(model))

    assert (forms.ranges, forms.keep_float) == (None, ())
    with pytest.raises(CalibrationError, match="INT8 without a calibration table is never run"):
        forms.qdq_model(QdqForm())
    with pytest.raises(CalibrationError, match="INT8 without a calibration table is never run"):
        forms.calibration_cache(version=8601, calibrator="EntropyCalibration2")


def test_the_cache_has_the_header_that_is_asked_for_and_every_range(model):
    forms = Forms(inspect_model(model), table_of(model))

    content = forms.calibration_cache(version=8601, calibrator="MinMaxCalibration").decode()

    assert content.startswith("TRT-8601-MinMaxCalibration\n")
    scales = parse_cache(content, "test").scales
    assert {name: scale.value * 127 for name, scale in scales.items()} == pytest.approx(dict(forms.ranges), rel=1e-6)


def test_means_beside_the_table_correct_biases_as_those_in_it(model):
    spec, table = inspect_model(model), table_of(model)
    means = (0.5, 0.4, 0.3)
    seen = msgspec.structs.replace(table.tensors["images"], means=means)
    with_them = msgspec.structs.replace(table, tensors={**table.tensors, "images": seen})

    inside = Forms(spec, with_them).qdq_model(QdqForm()).model
    beside = Forms(spec).by(table, means={"images": means}).qdq_model(QdqForm()).model

    assert inside == beside != Forms(spec, table).qdq_model(QdqForm()).model


def test_weights_in_other_files_are_in_every_form(model, tmp_path):
    import onnx

    path = tmp_path / "outside.onnx"
    onnx.save(onnx.load(model), path, save_as_external_data=True, location="outside.weights", size_threshold=0)
    forms = Forms(inspect_model(path), table_of(model, model=None))

    for content in (forms.float_model(), forms.float_model(is_float16=True), forms.qdq_model(QdqForm()).model):
        graph = graph_from_bytes(content, "alone")
        values = [graph.initializer(name) for node in graph.nodes for name in node.inputs]
        assert any(value is not None and np.any(value) for value in values)
