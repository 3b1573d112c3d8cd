"""`edge-deploy table import` of ONNX files with Q/DQ pairs, as a user types it."""

import hashlib
import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType

from edge.calibrate.table import read_table
from edge.model.inspect import inspect_model
from edge.model.qdq import insert_qdq
from tests.support import models, wrong_models
from tests.support.command_line import command
from tests.support.demo_model import MODEL, TABLE
from tests.support.tables import minmax, one_operator, pairs, pictures, run, store, stored
from tests.unit.model.test_qdq_read import SYMMETRIC, by_onnxruntime


def table(*arguments, expected=0):
    return command("edge-deploy", "table", *arguments, expected=expected)


def quantized(tmp_path, *, build=models.yolov8, keep_float=(), is_nameless=False):
    """Return a Q/DQ model of a tiny detector with the ranges of a picture."""
    path = build(tmp_path / "source.onnx", batch=1)
    if is_nameless:
        proto = onnx.load(path)
        for node in proto.graph.node:
            node.name = ""
        path.write_bytes(proto.SerializeToString())
    made = insert_qdq(path, inspect_model(path), ranges=minmax(path, pictures()), keep_float=keep_float)
    (tmp_path / "tiny-qat.onnx").write_bytes(made.model)
    return tmp_path / "tiny-qat.onnx"


def imported(source, *options):
    """Import `source`, and make a Q/DQ model of table and float model again."""
    folder = source.parent
    done = table("import", source, "-o", folder / "t.calib.json", "--float-model", folder / "float.onnx", *options)
    table("qdq", folder / "t.calib.json", "--model", folder / "float.onnx", "-o", folder / "again.onnx")
    return done


def weight_scales(path):
    return {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in onnx.load(path).graph.initializer
        if tensor.name.endswith("/scale") and len(tensor.dims) == 1
    }


@pytest.mark.parametrize("build", [models.yolov5, models.yolov8, models.yolov10])
def test_a_qdq_model_survives_import_and_qdq(tmp_path, build):
    source = quantized(tmp_path, build=build, keep_float=[])
    imported(source)
    first, second = source.read_bytes(), (tmp_path / "again.onnx").read_bytes()

    assert pairs(second) == pairs(first)
    assert len(pairs(first)) > 5
    mine, theirs = weight_scales(tmp_path / "again.onnx"), weight_scales(source)
    assert len(mine) == len(theirs) > 5
    for one, other in zip(mine.values(), theirs.values(), strict=True):
        np.testing.assert_array_max_ulp(one, other, maxulp=1)
    for name, value in run(first, pictures()).items():
        np.testing.assert_allclose(run(second, pictures())[name], value, rtol=1e-4, atol=1e-4)


def test_a_tensor_that_is_split_and_joined_again_has_the_range_of_its_parts(tmp_path):
    source = tmp_path / "qat.onnx"
    table("qdq", TABLE, "--model", MODEL, "-o", source)

    assert "warning: coverage" in imported(source).stderr

    assert pairs((tmp_path / "again.onnx").read_bytes()) == pairs(source.read_bytes())


def test_the_table_is_bound_to_the_float_model_as_written(tmp_path):
    source = quantized(tmp_path, keep_float=["Conv_0"])
    told = json.loads(imported(source, "--json").stdout)
    made = read_table(tmp_path / "t.calib.json")
    spec = inspect_model(tmp_path / "float.onnx")

    assert (made.model.name, made.model.sha256) == ("float", spec.sha256)
    assert made.model.sha256 == hashlib.sha256((tmp_path / "float.onnx").read_bytes()).hexdigest()
    assert made.preprocess == spec.preprocess.as_json()
    assert (made.method, {tensor.method for tensor in made.tensors.values()}) == ("qdq", {"qdq"})
    assert made.made_by.engine == "imported from tiny-qat.onnx"
    assert (made.dataset, made.imported, made.keep_float) == (None, None, ("Conv_0",))
    assert not spec.is_quantized
    assert told["table"] == str(tmp_path / "t.calib.json")
    assert told["float_model"] == str(tmp_path / "float.onnx")
    assert told["tensors"] == len(made.tensors)
    assert {finding["code"] for finding in told["findings"]} == {"coverage"}


def test_ranges_are_those_of_the_pairs(tmp_path):
    source = quantized(tmp_path)
    told = imported(source)
    made = read_table(tmp_path / "t.calib.json")

    scales = dict(pairs(source.read_bytes()).values())
    assert {name: tensor.scale.value for name, tensor in made.tensors.items()} == scales
    assert told.stdout.endswith(f"{len(scales)} tensors, 0 nodes kept in float, of {tmp_path}/float.onnx\n")
    assert "warning: coverage: covers" in told.stderr


def test_nodes_without_names_stay_in_float(tmp_path):
    source = quantized(tmp_path, keep_float=["Conv_0"], is_nameless=True)
    told = imported(source)

    assert "error" not in told.stderr
    assert read_table(tmp_path / "t.calib.json").keep_float == ("Conv_0",)
    assert set(pairs((tmp_path / "again.onnx").read_bytes()).values()) == set(pairs(source.read_bytes()).values())


@pytest.mark.parametrize("options", [SYMMETRIC, {"activation_type": QuantType.QUInt8}], ids=["int8", "uint8"])
def test_what_onnxruntime_has_quantized_becomes_a_table(tmp_path, options):
    source = by_onnxruntime(models.yolov8(tmp_path / "m.onnx", batch=1), pictures(), **options)
    source = source.rename(tmp_path / "ort.ONNX")
    imported(source)

    before, after = (run(path.read_bytes(), pictures()) for path in (source, tmp_path / "again.onnx"))
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, atol=0.05 * np.abs(value).max())


def refused(tmp_path, source, *, out="t.calib.json", float_model="float.onnx", options=()):
    """Import what cannot be; return what was told, after looking that no file was made or changed."""
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = table("import", source, "-o", tmp_path / out, "--float-model", tmp_path / float_model, *options, expected=2)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    return done.stderr


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "old files"])
@pytest.mark.parametrize("kind", ["float", "stored", "integer", "text", "empty", "classifier", "absent"])
def test_a_bad_model_writes_nothing(tmp_path, kind, is_there):
    source = tmp_path / "source.onnx"
    match kind:
        case "float":
            models.yolov8(source)
        case "stored":
            models.yolov8(source)
            proto = onnx.load(source)
            conv = next(node for node in proto.graph.node if node.op_type == "Conv")
            store(proto, "levels", np.ones(stored(proto)[conv.input[1]].shape, np.int8))
            store(proto, "step", np.float32(0.01))
            conv.input[1] = "restored"
            proto.graph.node.insert(0, helper.make_node("DequantizeLinear", ["levels", "step"], ["restored"]))
            source.write_bytes(proto.SerializeToString())
        case "integer":
            one_operator(source, "MatMul", weight=np.eye(6))
            proto = onnx.load(source)
            proto.graph.node[0].op_type = "MatMulInteger"
            source.write_bytes(proto.SerializeToString())
        case "text":
            source.write_text("TRT-100300-EntropyCalibration2\nimages: 3c010204\n")
        case "empty":
            source.write_bytes(b"")
        case "classifier":
            wrong_models.with_qdq(wrong_models.classifier(tmp_path / "c.onnx"), source)
        case "absent":
            pass
    if is_there:
        (tmp_path / "t.calib.json").write_text("old table")
        (tmp_path / "float.onnx").write_text("old model")

    told = refused(tmp_path, source)

    assert told.startswith(f"error: {source}: ")


def test_options_that_do_not_fit_the_source_are_usage_errors(tmp_path):
    source, cache = quantized(tmp_path), tmp_path / "trt.cache"
    cache.write_text("TRT-100300-EntropyCalibration2\nimages: 3c010204\n")

    assert "--model belongs to a cache" in refused(tmp_path, source, options=("--model", source))
    assert f"--float-model belongs to an ONNX, {cache} is read as a TensorRT" in refused(tmp_path, cache)
    told = table("import", source, "-o", tmp_path / "t", expected=2).stderr
    assert f"{source} is an ONNX: say with --float-model where its float model is to be written" in told
    assert "Traceback" not in told
    assert not (tmp_path / "t").exists()
