"""What layers take by TensorRT's profile: the fake TensorRT, and the real pycuda over a stand-in for the driver."""

import dataclasses
import os

import onnx
import pytest

from edge.engine.tensorrt.kind import KIND
from edge.errors import EngineError
from edge.model.inspect import inspect_model
from tests.support import fake_tensorrt, models
from tests.support.cuda_driver import stand_in
from tests.support.tables import quantized
from tests.support.values import canvases

pytestmark = pytest.mark.slow_but(reason="further boards and versions: the first row of each test is quick")

VERSIONS = ["8.6.1", "10.3.0", "11.4.0.106", "rtx-1.7.1.116"]


@pytest.fixture(params=[False, True], ids=["discrete", "integrated"])
def device(request):
    with stand_in(is_integrated=request.param, is_lazy=True) as made:
        yield made


@pytest.fixture
def fake(device):
    with fake_tensorrt.used("10.3.0") as made:
        made.give = device.give
        yield made


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return inspect_model(models.yolox(tmp_path_factory.mktemp("models") / "m.onnx"))


@pytest.fixture(scope="module")
def convolutions(spec):
    return [node.name for node in onnx.load(spec.path).graph.node if node.op_type == "Conv"]


def profiled(spec, names, rows=1):
    profiler = KIND.profiler(spec, names)
    try:
        profiler.run(canvases(spec, rows=rows))
        return {name: float(seconds[0]) for name, seconds in profiler.times().items()}
    finally:
        profiler.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_layer_is_timed_on_every_version_and_nothing_is_left_behind(device, spec, convolutions, version):
    capability = (8, 6) if version.startswith("rtx") else (8, 7)
    device.set(major=capability[0], minor=capability[1])
    with fake_tensorrt.used(version, capability=capability) as fake:
        fake.give = device.give
        assert profiled(spec, convolutions) == dict.fromkeys(convolutions, pytest.approx(1e-5))


def test_memory_that_runs_out_leaves_nothing_behind(device, fake, spec, convolutions):
    device.set(memory_bytes=device["device_bytes"] + 1000)

    with pytest.raises(EngineError, match=r"m: taking .* out of memory"):
        profiled(spec, convolutions)


def test_a_layer_that_is_reported_twice_in_a_run_takes_the_sum(fake, spec, convolutions):
    name = convolutions[0]
    fake.faults.layers = [(name, "conv", f"[ONNX Layer: {name}]", ms) for ms in (1.0, 2.0)]

    assert profiled(spec, convolutions)[name] == pytest.approx(3e-3)


def test_a_profiler_that_is_refused_is_told_in_tensorrts_words_and_nothing_is_left_behind(
    device, fake, spec, convolutions
):
    fake.faults.profile = "the profiler is not supported in this mode"

    with pytest.raises(
        EngineError, match=r"m: TensorRT refuses to report what its layers took: .*not supported in this mode"
    ):
        profiled(spec, convolutions)


def test_a_profiler_that_is_told_nothing_is_no_measurement(fake, spec, convolutions):
    fake.faults.layers = []

    with pytest.raises(EngineError, match="m: TensorRT's profiler reported no layer"):
        profiled(spec, convolutions)


def test_layers_of_both_models_are_timed_for_a_comparison(device, fake, tmp_path):
    path = models.yolox(tmp_path / "m.onnx", batch=1)
    spec = inspect_model(path)
    names = [node.name for node in onnx.load(path).graph.node if node.op_type == "Conv"]
    for one, content in ((spec, None), (dataclasses.replace(spec, is_quantized=True), quantized(path).model)):
        profiler = KIND.profiler(one, names, content=content)
        profiler.warm_up(canvases(spec, rows=1))
        for _ in range(3):
            profiler.run(canvases(spec, rows=1))
        times = profiler.times()
        profiler.close()

        assert list(times) == names
        assert all(seconds == pytest.approx([1e-5] * 3) for seconds in times.values())


def test_tensorrt_8_does_not_take_the_form_that_is_compared_and_says_so(device, tmp_path):
    path = models.yolox(tmp_path / "m.onnx", batch=1)
    spec = dataclasses.replace(inspect_model(path), is_quantized=True)

    with fake_tensorrt.used("8.6.1"), pytest.raises(EngineError, match="does not support INT8 weights"):
        KIND.profiler(spec, [], content=quantized(path).model)


@pytest.mark.skipif(os.path.exists("/dev/nvidia0") or os.path.exists("/dev/nvhost-gpu"), reason="there is a GPU")
def test_without_a_driver_it_says_what_is_missing(spec):
    with fake_tensorrt.used("10.3.0"), pytest.raises(EngineError, match="CUDA driver"):
        KIND.profiler(spec, [])


def test_a_layer_in_parts_is_their_sum_and_one_that_shares_a_part_is_left_out(fake, spec, convolutions):
    first, second, third, fourth = convolutions[:4]
    fake.faults.layers = [
        ("sums", "conv", f"[ONNX Layer: {first}]", 1.0),
        ("levels", "kgen", f"[ONNX Layer: /act]\x1f[ONNX Layer: {first}]", 0.5),
        ("two", "conv", f"[ONNX Layer: {second}]\x1f[ONNX Layer: {third}]", 1.0),
        ("own part", "kgen", f"[ONNX Layer: {third}]", 1.0),
        (fourth, "conv", f"[ONNX Layer: {fourth}]", 2.0),
    ]

    assert profiled(spec, convolutions) == {
        first: pytest.approx(1.5e-3),
        fourth: pytest.approx(2e-3),
    }


def test_a_fixed_batch_is_told_for_one_frame(fake, tmp_path):
    spec = inspect_model(models.yolox(tmp_path / "m.onnx", batch=4))
    name = next(node.name for node in onnx.load(spec.path).graph.node if node.op_type == "Conv")

    assert profiled(spec, [name], rows=4)[name] == pytest.approx(1e-5 / 4)
