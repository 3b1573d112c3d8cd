"""What layers take by TensorRT's profile: the fake TensorRT, and the real pycuda over a stand-in for the driver."""

import dataclasses
import os

import numpy as np
import onnx
import pytest

from edge.engine.kind import EngineRequest
from edge.engine.measuring import MeasuringKind
from edge.engine.tensorrt import layer_times
from edge.engine.tensorrt.kind import KIND
from edge.errors import EngineError
from edge.model.inspect import inspect_model
from edge.model.qdq import insert_qdq
from edge.quantize.forms import Forms
from edge.types import Precision
from tests.support import fake_tensorrt, models
from tests.support.cuda_driver import stand_in
from tests.support.qdq import minmax, pictures

VERSIONS = ["8.6.1", "10.3.0", "11.4.0.106", "rtx-1.7.1.116"]
LEFT = ("live", "contexts", "device_bytes")


@pytest.fixture(params=[False, True], ids=["discrete", "integrated"])
def device(request, monkeypatch):
    monkeypatch.setattr(layer_times, "LEAST_S", 0.001)
    monkeypatch.setattr(layer_times, "WARM_S", 0.001)
    with stand_in(is_integrated=request.param, is_lazy=True) as made:
        yield made
        assert made.failures == []


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


def canvas(spec, rows=1):
    size = spec.preprocess.size
    return np.random.default_rng(0).integers(0, 256, (rows, size.height, size.width, 3), np.uint8)


def node_meter(spec, names, rows=1):
    request = EngineRequest(precision=Precision.FP16, max_batch=rows, options=KIND.options_type())
    plan = KIND.build(Forms(spec), request).data
    return KIND.node_meter(spec, names, content=plan, rows=rows, cores=KIND.cores)


def test_it_measures_a_gpu_as_a_whole():
    assert isinstance(KIND, MeasuringKind)
    assert (KIND.cores, KIND.is_processor) == (1, False)
    assert KIND.precisions == (Precision.FP16, Precision.INT8)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_layer_is_timed_on_every_version_and_nothing_is_left_behind(device, spec, convolutions, version):
    capability = (8, 6) if version.startswith("rtx") else (8, 7)
    device.set(major=capability[0], minor=capability[1])
    with fake_tensorrt.used(version, capability=capability) as fake:
        fake.give = device.give
        before = {name: device[name] for name in LEFT}
        meter = node_meter(spec, convolutions, rows=2)
        meter.measure()

        nodes = {node.name: node for node in meter.nodes()}

        assert {name: device[name] for name in LEFT} == before
    assert all(nodes[name].layers == {name} for name in convolutions)
    assert all(nodes[name].seconds == pytest.approx(1e-5) for name in convolutions)
    assert 0 < meter.run_s < 60
    assert (meter.interrupted, meter.resolution_s) == (0.0, 1e-6)


def test_what_is_around_the_engine_is_timed_by_the_gpus_clock_and_belongs_to_no_layer(device, fake, spec, convolutions):
    meter = node_meter(spec, convolutions)
    meter.measure()

    around = {
        node.name: node for node in meter.nodes() if node.name in ("copy to the GPU", "preprocess", "copy to the host")
    }

    expected = {"preprocess", "copy to the host"} | (
        {"copy to the GPU"} if not device.settings["is_integrated"] else set()
    )
    assert set(around) == expected
    assert all(node.seconds > 0 and node.layers == frozenset() for node in around.values())
    assert sum(node.seconds for node in around.values()) < meter.run_s
    assert "engine" not in {node.name for node in meter.nodes()}  # which is its layers


def test_memory_that_runs_out_leaves_nothing_behind(device, fake, spec, convolutions):
    meter = node_meter(spec, convolutions)
    before = {name: device[name] for name in LEFT}
    device.set(memory_bytes=device["device_bytes"] + 1000)

    with pytest.raises(EngineError, match=r"m: taking .* out of memory"):
        meter.measure()

    assert {name: device[name] for name in LEFT} == before


def test_a_fused_layer_is_one_node_of_all_its_layers_and_what_has_no_origin_of_none(fake, spec, convolutions):
    first, second, third = convolutions[:3]
    fake.faults.layers = [
        ("fused", "CaskConvolution", f"[ONNX Layer: {first}]\x1f[ONNX Layer: /act]\x1f[ONNX Layer: {second}]", 0.5),
        (f"{third} + act", "CaskConvolution", None, 0.25),
        ("{ForeignNode[a...b]}", "Myelin", "", 0.125),
        ("Reformatting CopyNode for Input Tensor 0 to fused", "Reformat", "", 0.0625),
        ("not in the inspector", None, "", 0.03125),
    ]
    meter = node_meter(spec, convolutions)
    meter.measure()

    nodes = {node.name: node for node in meter.nodes()}

    assert (nodes["fused"].layers, nodes["fused"].seconds) == ({first, second}, pytest.approx(5e-4))
    assert (nodes[f"{third} + act"].layers, nodes[f"{third} + act"].seconds) == ({third}, pytest.approx(2.5e-4))
    beside = ("{ForeignNode[a...b]}", "Reformatting CopyNode for Input Tensor 0 to fused", "not in the inspector")
    assert [nodes[name].layers for name in beside] == [frozenset()] * 3
    assert nodes["Reformatting CopyNode for Input Tensor 0 to fused"].kind == "Reformat"


def test_a_layer_that_is_reported_twice_in_a_run_takes_the_sum(fake, spec, convolutions):
    name = convolutions[0]
    fake.faults.layers = [(name, "conv", f"[ONNX Layer: {name}]", ms) for ms in (1.0, 2.0)]
    meter = node_meter(spec, convolutions)
    meter.measure()

    assert {node.name: node.seconds for node in meter.nodes()}[name] == pytest.approx(3e-3)


def test_of_several_blocks_the_fastest_counts_and_of_a_block_the_median(fake, spec, convolutions):
    name, entry = convolutions[0], f"[ONNX Layer: {convolutions[0]}]"
    meter = node_meter(spec, convolutions)
    for ms in (2.0, 1.0, 4.0):
        fake.faults.layers = [(name, "conv", entry, ms)]
        meter.measure()
    assert {node.name: node.seconds for node in meter.nodes()}[name] == pytest.approx(1e-3)

    assert layer_times._medians([{"a": 1.0}, {"a": 9.0}, {"a": 2.0, "b": 7.0}]) == {"a": 2.0, "b": 7.0}


def test_a_profiler_that_is_refused_is_told_in_tensorrts_words_and_nothing_is_left_behind(
    device, fake, spec, convolutions
):
    before = {name: device[name] for name in LEFT}
    fake.faults.profile = "the profiler is not supported in this mode"
    meter = node_meter(spec, convolutions)

    with pytest.raises(
        EngineError, match=r"m: TensorRT refuses to report what its layers took: .*not supported in this mode"
    ):
        meter.measure()

    assert {name: device[name] for name in LEFT} == before


def test_a_profiler_that_is_told_nothing_is_no_measurement(fake, spec, convolutions):
    fake.faults.layers = []

    with pytest.raises(EngineError, match="m: TensorRT's profiler reported no layer"):
        node_meter(spec, convolutions).measure()


def test_layers_of_both_models_are_timed_for_a_comparison(device, fake, tmp_path):
    path = models.yolox(tmp_path / "m.onnx", batch=1)
    spec = inspect_model(path)
    names = [node.name for node in onnx.load(path).graph.node if node.op_type == "Conv"]
    made = insert_qdq(path, spec, ranges=minmax(path, pictures()), keep_float=())
    before = {name: device[name] for name in LEFT}

    for one, content in ((spec, None), (dataclasses.replace(spec, is_quantized=True), made.model)):
        profiler = KIND.profiler(one, names, content=content)
        profiler.warm_up(canvas(spec))
        for _ in range(3):
            profiler.run(canvas(spec))
        times = profiler.times()
        profiler.close()

        assert list(times) == names
        assert all(seconds == pytest.approx([1e-5] * 3) for seconds in times.values())
    assert {name: device[name] for name in LEFT} == before


def test_tensorrt_8_does_not_take_the_form_that_is_compared_and_says_so(device, tmp_path):
    path = models.yolox(tmp_path / "m.onnx", batch=1)
    spec = dataclasses.replace(inspect_model(path), is_quantized=True)
    made = insert_qdq(path, inspect_model(path), ranges=minmax(path, pictures()), keep_float=())

    with fake_tensorrt.used("8.6.1"), pytest.raises(EngineError, match="does not support INT8 weights"):
        KIND.profiler(spec, [], content=made.model)


@pytest.mark.skipif(os.path.exists("/dev/nvidia0") or os.path.exists("/dev/nvhost-gpu"), reason="there is a GPU")
@pytest.mark.parametrize("of", ["profiler", "roof_meter"])
def test_without_a_driver_it_says_what_is_missing(spec, of):
    with fake_tensorrt.used("10.3.0"), pytest.raises(EngineError, match="CUDA driver"):
        KIND.profiler(spec, []) if of == "profiler" else KIND.roof_meter(cores=1).measure()


def test_a_layer_in_parts_is_their_sum_and_one_that_shares_a_part_is_left_out(fake, spec, convolutions):
    first, second, third, fourth = convolutions[:4]
    fake.faults.layers = [
        ("sums", "conv", f"[ONNX Layer: {first}]", 1.0),
        ("levels", "kgen", f"[ONNX Layer: /act]\x1f[ONNX Layer: {first}]", 0.5),
        ("two", "conv", f"[ONNX Layer: {second}]\x1f[ONNX Layer: {third}]", 1.0),
        ("own part", "kgen", f"[ONNX Layer: {third}]", 1.0),
        (fourth, "conv", f"[ONNX Layer: {fourth}]", 2.0),
    ]
    profiler = KIND.profiler(spec, convolutions)
    profiler.run(canvas(spec))

    times = profiler.times()
    profiler.close()

    assert {name: float(seconds[0]) for name, seconds in times.items()} == {
        first: pytest.approx(1.5e-3),
        fourth: pytest.approx(2e-3),
    }


def test_a_fixed_batch_is_told_for_one_frame(fake, tmp_path):
    spec = inspect_model(models.yolox(tmp_path / "m.onnx", batch=4))
    name = next(node.name for node in onnx.load(spec.path).graph.node if node.op_type == "Conv")
    profiler = KIND.profiler(spec, [name])
    profiler.run(canvas(spec, 4))

    assert profiler.times()[name] == pytest.approx([1e-5 / 4])
    profiler.close()
