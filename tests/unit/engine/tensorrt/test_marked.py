"""Plans that give out tensors from inside the network, on every version of the fake."""

import pytest

from edge.engine.tensorrt.binding import import_tensorrt
from edge.engine.tensorrt.inside import build_marked
from edge.errors import EngineError
from edge.model.graph import load_graph
from tests.support import fake_tensorrt
from tests.support.fake_tensorrt.builds import DESKTOP


def marked(spec, names):
    return build_marked(import_tensorrt(), DESKTOP, spec, spec.path.read_bytes(), names, max_batch=2)


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "11.4.0.106", "rtx-1.7.1.116"])
def test_tensors_are_given_out_beside_the_output_each_once(spec, version):
    inner = next(node.outputs[0] for node in load_graph(spec.path).nodes if node.op_type == "Conv")
    with fake_tensorrt.used(version):
        header, content = marked(spec, [inner, spec.output_name, inner])
    assert [one.name for one in header.outputs] == [spec.output_name, inner]
    assert header.precision == "fp32"
    assert content


def test_a_name_that_is_none_is_refused(spec):
    with fake_tensorrt.used(), pytest.raises(EngineError, match='no tensor "nothing"'):
        marked(spec, ["nothing"])


def test_a_build_that_fails_is_told_with_its_reason(spec):
    with fake_tensorrt.used(build="no implementation"), pytest.raises(EngineError, match="built nothing: no impl"):
        marked(spec, [])
