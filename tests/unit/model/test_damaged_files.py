"""A file that is damaged is refused with its size and the reason."""

import os
import re

import numpy as np
import onnx
import pytest

from edge.errors import ModelError
from edge.model.graph import graph_from_bytes, load_graph, read_model_file
from edge.model.inspect import inspect_model
from tests.support.models import yolov8


def test_missing_file(tmp_path):
    with pytest.raises(ModelError, match=r"none\.onnx: expected a readable ONNX file: No such file"):
        inspect_model(tmp_path / "none.onnx")


def test_folder(tmp_path):
    with pytest.raises(ModelError, match=f"^{re.escape(str(tmp_path))}: "):
        inspect_model(tmp_path)


def test_empty_file(tmp_path):
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")

    with pytest.raises(ModelError, match=r"the file is empty \(0 bytes\)"):
        inspect_model(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_file_cut_short(tmp_path, share):
    path = yolov8(tmp_path / "tiny.onnx")
    data = path.read_bytes()
    kept = data[: int(len(data) * share)]
    path.write_bytes(kept)

    with pytest.raises(ModelError, match=f"these {len(kept)} bytes"):
        inspect_model(path)


@pytest.mark.parametrize(
    "data", [b"<html>not found</html>" * 20, b"version https://git-lfs.github.com/spec/v1\n", b"\0"]
)
def test_file_of_another_format(tmp_path, data):
    path = tmp_path / "page.onnx"
    path.write_bytes(data)

    with pytest.raises(ModelError, match=f"{len(data)} bytes"):
        inspect_model(path)


def test_graph_that_reads_a_tensor_nobody_makes(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx")
    model = onnx.load(path)
    model.graph.node[0].input[0] = "nowhere"
    path.write_bytes(model.SerializeToString())

    with pytest.raises(ModelError, match=r"not a valid ONNX model: .*nowhere"):
        inspect_model(path)


def _with_external_weights(tmp_path):
    path = tmp_path / "tiny.onnx"
    model = onnx.load(yolov8(tmp_path / "whole.onnx"))
    onnx.save(model, path, save_as_external_data=True, location="tiny.weights", size_threshold=0)
    return path


def test_external_weights_are_read(tmp_path):
    path = _with_external_weights(tmp_path)

    assert inspect_model(path).strides == (8, 16, 32)


def test_external_weights_that_are_missing_are_named(tmp_path):
    path = _with_external_weights(tmp_path)
    (tmp_path / "tiny.weights").unlink()

    with pytest.raises(ModelError, match=r"its weights lie in tiny\.weights, expected beside the model, not found"):
        inspect_model(path)


def test_external_weights_cut_short_are_refused(tmp_path):
    path = _with_external_weights(tmp_path)
    (tmp_path / "tiny.weights").write_bytes(b"\0" * 100)

    with pytest.raises(ModelError, match=r"external weights cannot be read|not a valid"):
        load_graph(path)


def changed(path, change):
    proto = onnx.load(path, load_external_data=False)
    change(proto)
    path.write_bytes(proto.SerializeToString())
    return path


def without_lengths(proto):
    for tensor in proto.graph.initializer:
        kept = [entry for entry in tensor.external_data if entry.key != "length"]
        del tensor.external_data[:]
        tensor.external_data.extend(kept)


@pytest.mark.parametrize("change", [lambda proto: None, without_lengths], ids=["with lengths", "without"])
def test_a_terabyte_of_sparse_external_weights_is_not_read(tmp_path, change):
    path = changed(_with_external_weights(tmp_path), change)
    os.truncate(tmp_path / "tiny.weights", 1 << 40)

    with pytest.raises(ModelError, match=r"tiny\.weights: expected at most \d+ bytes for its \d+ tensors, it has 1099"):
        inspect_model(path)


def test_a_tensor_that_is_said_to_have_more_than_its_shape_is_not_read(tmp_path):
    def lengthen(proto):
        entries = [entry for tensor in proto.graph.initializer for entry in tensor.external_data]
        next(entry for entry in entries if entry.key == "length").value = str(1 << 40)

    with pytest.raises(ModelError, match=r'tensor "\w+" of shape \(.*\) is said to have 1099511627776 bytes'):
        inspect_model(changed(_with_external_weights(tmp_path), lengthen))


@pytest.mark.parametrize(("axis", "size"), [(2, -96), (3, 0), (0, -1), (1, -3), (0, -(2**62))])
def test_an_input_of_a_size_that_no_picture_has_is_refused(tmp_path, axis, size):
    def declare(proto):
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size

    with pytest.raises(ModelError, match=r'input "images" is declared as \(.*\), expected sizes of at least 1'):
        inspect_model(changed(yolov8(tmp_path / "m.onnx"), declare))


def test_digest_covers_external_weights(tmp_path):
    path = _with_external_weights(tmp_path)
    before = read_model_file(path).sha256
    weights = tmp_path / "tiny.weights"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")

    assert read_model_file(path).sha256 != before


def test_content_is_the_whole_model_also_where_weights_lie_in_another_file(tmp_path):
    path = _with_external_weights(tmp_path)

    content = read_model_file(path).content

    assert len(content) > path.stat().st_size
    alone, with_file = graph_from_bytes(content, "bytes alone"), load_graph(path)
    names = [name for node in alone.nodes for name in node.inputs if alone.initializer(name) is not None]
    assert names
    for name in names:
        np.testing.assert_array_equal(alone.initializer(name), with_file.initializer(name))
