import numpy as np
import onnx

from edge.model.inspect import inspect_model
from edge.model.obstacles import report_on_model
from tests.support.models import yolov5, yolov8, yolov10
from tests.support.wrong_models import with_qdq


def _sentences(path):
    return "\n".join(report_on_model(inspect_model(path)).obstacles)


def test_depthwise_mixed_output_and_fixed_batch_are_said(tmp_path):
    text = _sentences(yolov8(tmp_path / "tiny.onnx", batch=1))

    assert "3 of its convolutions are depthwise" in text
    assert 'Its output "output0" joins boxes and scores' in text
    assert "Its batch is fixed to 1" in text
    assert "Q/DQ" not in text


def test_dynamic_batch_is_no_obstacle(tmp_path):
    assert "batch" not in _sentences(yolov5(tmp_path / "tiny.onnx"))


def test_qdq_nodes_are_counted(tmp_path):
    path = with_qdq(yolov8(tmp_path / "float.onnx"), tmp_path / "int8.onnx")

    assert "It carries 2 Q/DQ nodes already" in _sentences(path)


def test_integer_operators_are_named(tmp_path):
    path = yolov8(tmp_path / "tiny.onnx")
    model = onnx.load(path)
    stored = {"m": np.ones((2, 2), np.uint8), "s": np.float32(0.5), "z": np.uint8(0)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in stored.items())
    node = onnx.helper.make_node("QLinearMatMul", ["m", "s", "z", "m", "s", "z", "s", "z"], ["q"], name="ql")
    model.graph.node.insert(0, node)
    path.write_bytes(model.SerializeToString())

    assert "It has 1 QLinearMatMul nodes, integer operators that TensorRT does not run" in _sentences(path)


def test_old_opset_is_said(tmp_path):
    path = yolov10(tmp_path / "tiny.onnx")
    model = onnx.load(path)
    report = report_on_model(inspect_model(path))

    assert model.opset_import[0].version == 17
    assert not any("opset" in sentence for sentence in report.obstacles)
    assert report.cost.macs > 0
