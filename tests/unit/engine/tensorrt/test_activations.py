"""TensorRT as something to look into, beside what the contract tests hold: failures, what crosses, what is left."""

import numpy as np
import onnx
import pytest

from edge.calibrate.histogram import Observer
from edge.engine.tensorrt.kind import KIND
from edge.errors import EngineError
from edge.model.graph import load_graph
from edge.model.qdq import corrected_tensors, quantizable_tensors
from edge.quantize.forms import Forms
from tests.support import fake_tensorrt
from tests.support.cuda_driver import stand_in
from tests.support.onnxruntime_engine import OnnxRuntimeActivations
from tests.support.tables import count
from tests.support.values import canvases, infer

pytestmark = pytest.mark.slow_but(reason="further boards and versions: the first row of each test is quick")


@pytest.fixture(params=["8.6.1", "10.3.0", "11.4.0.106"])
def device(request):
    with stand_in(is_integrated=False, is_lazy=True) as made, fake_tensorrt.used(request.param) as fake:
        fake.give = made.give
        yield made


def test_two_canvases_at_once_on_a_discrete_gpu_and_nothing_left_behind(device, spec):
    names = quantizable_tensors(load_graph(spec.path))
    images = [canvases(spec, seed, rows=2) for seed in (1, 11)]
    engine = KIND.activations(spec, names, max_batch=2)

    for index in (0, 1):
        engine.canvases[index][:] = images[index]
        engine.start(index, 2)
    found = [{name: values.copy() for name, values in engine.wait(index).items()} for index in (0, 1)]

    for index in (0, 1):
        reference = OnnxRuntimeActivations(spec, names, max_batch=2)
        for name, values in infer(reference, images[index]).items():
            largest = float(np.abs(values).max())
            np.testing.assert_allclose(found[index][name], values, rtol=1e-3, atol=1e-4 * largest)
    engine.close()


def test_a_tensor_that_is_not_there_is_named(device, spec):
    with pytest.raises(EngineError, match='model: TensorRT has no tensor "nowhere"'):
        KIND.activations(spec, ["nowhere"])


def test_memory_that_runs_out_leaves_nothing_behind(device, spec):
    device.set(memory_bytes=device["device_bytes"] + 200_000)

    with pytest.raises(EngineError, match=r"model: taking .* out of memory"):
        KIND.activations(spec, quantizable_tensors(load_graph(spec.path)), max_batch=4)


def test_of_what_is_observed_only_counts_and_peaks_cross_to_the_host(device, spec):
    names = quantizable_tensors(load_graph(spec.path))
    size = spec.preprocess.size
    engine = KIND.observing(spec, names, largest_of=[spec.output_name], max_batch=4)
    engine.canvases[0][:] = canvases(spec, 2, rows=4)

    for rows in (4, 3):
        with device.counted() as counted:
            engine.start(0, rows)
            found = engine.wait(0)

        assert counted["bytes_to_host"] == len(names) * (2048 + 4) * 4 + 4 * 4
        assert counted["copies_to_host"] == 2
        assert (counted["allocations"], counted["live"], counted["synchronizations"]) == (0, 0, 1)
        assert found[spec.input_name].total == rows * 3 * size.width * size.height
    engine.close()


def test_two_canvases_are_observed_at_once_and_nothing_is_left_behind(device, spec):
    names = quantizable_tensors(load_graph(spec.path))
    images = [canvases(spec, seed, rows=2) for seed in (3, 13)]
    images[1] //= 16
    engine = KIND.observing(spec, names, max_batch=2)

    for index in (0, 1):
        engine.canvases[index][:] = images[index]
        engine.start(index, 2)
    found = [engine.wait(index)[spec.input_name] for index in (0, 1)]
    again = engine.wait(0)[spec.input_name]

    for index, counted in enumerate((*found, again)):
        observer = Observer()
        observer.observe("x", counted)
        # What the kernel makes of a pixel differs from numpy in the last bit; how many there are of a kind does not.
        expected = count(images[index % 2].astype(np.float32))
        assert observer.histograms["x"].zeros == expected.zeros
        assert observer.histograms["x"].amax == pytest.approx(expected.amax / 255)
    engine.close()


def test_what_a_model_computes_in_float16_is_given_out_as_float32_and_counted_as_what_it_is(device, spec):
    content = Forms(spec).float_model(is_float16=True)
    nodes = onnx.load_from_string(content).graph.node
    names = [node.output[0] for node in nodes if node.op_type == "Conv"][:2]
    image = canvases(spec, 4, rows=1)
    values = KIND.activations(spec, names, content=content)
    seen = KIND.observing(spec, names[:1], largest_of=names[1:], content=content)

    given, counted = infer(values, image), infer(seen, image)

    observer = Observer()
    observer.observe(names[0], counted[names[0]])
    assert all(given[name].dtype == np.float32 for name in names)
    assert (given[names[0]] == given[names[0]].astype(np.float16)).all()
    assert observer.histograms[names[0]] == count(given[names[0]])
    assert counted[names[1]] == np.abs(given[names[1]]).max()
    values.close()
    seen.close()


def test_of_what_is_averaged_only_means_cross_to_the_host(device, spec):
    names = corrected_tensors(load_graph(spec.path))
    values, averaging = KIND.activations(spec, names, max_batch=4), KIND.averaging(spec, names, max_batch=4)
    image = canvases(spec, 6, rows=4)
    given = infer(values, image)
    averaging.canvases[0][:] = image

    for rows in (4, 3):
        with device.counted() as counted:
            averaging.start(0, rows)
            found = averaging.wait(0)

        channels = sum(given[name].shape[1] for name in names)
        assert (counted["bytes_to_host"], counted["copies_to_host"]) == (4 * channels * 8, 1)
        assert (counted["allocations"], counted["live"], counted["synchronizations"]) == (0, 0, 1)
        for name in names:
            expected = given[name][:rows].reshape(rows, given[name].shape[1], -1).mean(axis=2, dtype=np.float64)
            np.testing.assert_allclose(found[name], expected, rtol=1e-12, atol=1e-12)
    values.close()
    averaging.close()


def test_what_a_model_computes_in_float16_is_averaged_as_what_it_is(device, spec):
    content = Forms(spec).float_model(is_float16=True)
    name = next(node.output[0] for node in onnx.load_from_string(content).graph.node if node.op_type == "Conv")
    values, averaging = (kind(spec, [name], content=content) for kind in (KIND.activations, KIND.averaging))
    image = canvases(spec, 7, rows=1)

    expected = infer(values, image)[name].mean(axis=(2, 3), dtype=np.float64)

    np.testing.assert_allclose(infer(averaging, image)[name], expected, rtol=1e-12)
    values.close()
    averaging.close()
