"""TensorRT as something to look into, beside what the contract test holds: failures, and what is left behind."""

import numpy as np
import pytest

from edge.engine.tensorrt.kind import KIND
from edge.errors import EngineError
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import quantizable_tensors
from tests.support import fake_tensorrt, models
from tests.support.cuda_driver import stand_in
from tests.support.onnxruntime_engine import OnnxRuntimeActivations


@pytest.fixture(params=["8.6.1", "10.3.0", "11.4.0.106"])
def device(request):
    with stand_in(is_integrated=False, is_lazy=True) as made, fake_tensorrt.used(request.param) as fake:
        fake.give = made.give
        yield made
        assert made.failures == []


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return inspect_model(models.yolov8(tmp_path_factory.mktemp("models") / "m.onnx"))


def test_two_canvases_at_once_on_a_discrete_gpu_and_nothing_left_behind(device, spec):
    before = {name: device[name] for name in ("live", "contexts", "device_bytes")}
    names = quantizable_tensors(load_graph(spec.path))
    size = spec.preprocess.size
    images = np.random.default_rng(1).integers(0, 256, (2, 2, size.height, size.width, 3), np.uint8)
    engine = KIND.activations(spec, names, largest_of=[spec.output_name], max_batch=2)

    for index in (0, 1):
        engine.canvases[index][:] = images[index]
        engine.start(index, 2)
    found = [{name: values.copy() for name, values in engine.wait(index).items()} for index in (0, 1)]

    for index in (0, 1):
        reference = OnnxRuntimeActivations(spec, names, max_batch=2)
        reference.canvases[0][:] = images[index]
        reference.start(0, 2)
        for name, values in reference.wait(0).items():
            if name == spec.output_name:
                values = np.abs(values).max(axis=(1, 2))
            largest = float(np.abs(values).max())
            np.testing.assert_allclose(found[index][name], values, rtol=1e-3, atol=1e-4 * largest)
    engine.close()
    assert {name: device[name] for name in before} == before


def test_a_tensor_that_is_not_there_is_named(device, spec):
    with pytest.raises(EngineError, match='m: TensorRT has no tensor "nowhere"'):
        KIND.activations(spec, ["nowhere"])


def test_memory_that_runs_out_leaves_nothing_behind(device, spec):
    before = {name: device[name] for name in ("live", "contexts")}
    device.set(memory_bytes=device["device_bytes"] + 200_000)

    with pytest.raises(EngineError, match=r"m: taking .* out of memory"):
        KIND.activations(spec, quantizable_tensors(load_graph(spec.path)), max_batch=4)

    assert {name: device[name] for name in before} == before
