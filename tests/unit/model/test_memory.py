"""A small model that would take all memory is refused by its shapes, before anything is computed."""

import itertools
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from edge.errors import ModelError
from edge.model.editor import resolve
from edge.model.graph import graph_of_proto
from edge.model.inspect import MAX_WORKING_BYTES, inspect_graph, working_bytes

ROOT = Path(__file__).parents[3]
INSPECT = """
import sys
from pathlib import Path
from edge.errors import ModelError
from edge.model.inspect import inspect_model
try:
    inspect_model(Path(sys.argv[1]))
except ModelError as error:
    print(error)
"""


def _model(nodes, out, *, initializers=()):
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, (1, 3, 64, 64))
    output = helper.make_tensor_value_info(out, TensorProto.FLOAT, ("a", "b", "c", "d"))
    graph = helper.make_graph(nodes, "bomb", [images], [output], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _doublings(count):
    names = ["images", *(f"twice{index}" for index in range(count))]
    return [
        helper.make_node("Concat", [before, before], [after], axis=1, name=after)
        for before, after in itertools.pairwise(names)
    ], names[-1]


def _refused_within(path, tmp_path):
    ran = subprocess.run(
        ["prlimit", f"--as={4 << 30}", sys.executable, "-c", INSPECT, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-500:]
    return ran.stdout


def test_forty_doublings_of_the_picture_are_refused(tmp_path):
    path = tmp_path / "doublings.onnx"
    onnx.save(_model(*_doublings(40)), path)
    told = _refused_within(path, tmp_path)
    assert f"{path}: its tensors take" in told
    assert f"at most {MAX_WORKING_BYTES} for each are allowed" in told


def test_a_constant_that_unfolds_to_all_memory_is_not_unfolded(tmp_path):
    size = helper.make_tensor("size", TensorProto.INT64, (3,), (4096, 4096, 4096))
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["huge"], name="huge"),
        helper.make_node("ReduceSum", ["huge"], ["sum"], name="sum", keepdims=0),
        helper.make_node("Cast", ["sum"], ["sum64"], name="sum64", to=TensorProto.INT64),
        helper.make_node("Reshape", ["images", "shape"], ["out"], name="out"),
        helper.make_node("Unsqueeze", ["sum64", "zero"], ["shape"], name="shape"),
    ]
    zero = helper.make_tensor("zero", TensorProto.INT64, (1,), (0,))
    path = tmp_path / "constant.onnx"
    onnx.save(_model(nodes, "out", initializers=[size, zero]), path)
    assert f"{path}: " in _refused_within(path, tmp_path)


def test_what_is_live_at_once_is_counted_and_no_more():
    nodes = [
        helper.make_node("Relu", ["images"], ["a"], name="a"),
        helper.make_node("Relu", ["a"], ["b"], name="b"),
        helper.make_node("Concat", ["b", "b"], ["c"], axis=1, name="c"),
    ]
    graph = resolve(graph_of_proto(_model(nodes, "c"), "three"), (1, 3, 64, 64))
    picture = 3 * 64 * 64 * 4
    assert working_bytes(graph) == (3 * picture, "c")


def test_many_tensors_below_the_bound_are_refused_together():
    doubled, last = _doublings(14)  # 805 MB
    branches = [helper.make_node("Relu", [last], [f"r{index}"], name=f"r{index}") for index in range(3)]
    joined = helper.make_node("Sum", [node.output[0] for node in branches], ["out"], name="out")
    graph = graph_of_proto(_model([*doubled, *branches, joined], "out"), "many")
    with pytest.raises(ModelError, match="its tensors take"):
        inspect_graph(graph, path=Path("many.onnx"), sha256="0" * 64)
