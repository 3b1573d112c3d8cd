"""The model that the package ships, larger than those of the tests, through build, load, inference and observing."""

from pathlib import Path

import numpy as np
import pytest

import edge.demo
from edge.calibrate.histogram import Observer
from edge.engine.kind import EngineRequest
from edge.engine.tensorrt.kind import KIND
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import quantizable_tensors
from edge.quantize.forms import Forms
from edge.types import Precision
from tests.support.fake_gpu import fake_gpu
from tests.support.onnxruntime_engine import OnnxRuntimeEngine
from tests.support.values import infer


@pytest.fixture(scope="module")
def spec():
    return inspect_model(Path(edge.demo.__file__).parent / "model" / "traffic.onnx")


@pytest.fixture(scope="module")
def images(spec):
    size = spec.preprocess.size
    return np.random.default_rng(9).integers(0, 256, (2, size.height, size.width, 3), np.uint8)


def test_it_is_built_loaded_and_run(spec, images):
    request = EngineRequest(precision=Precision.FP32, max_batch=2, options=KIND.options_type())
    expected = infer(OnnxRuntimeEngine(spec, max_batch=2), images)

    with fake_gpu():
        engine = KIND.load(KIND.build(Forms(spec), request).data, spec, request)
        found = np.array(infer(engine, images))
        engine.close()

    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * float(np.abs(expected).max()))


def test_its_histograms_counted_on_the_gpu_are_those_of_the_host(spec, images):
    names = quantizable_tensors(load_graph(spec.path))
    there, here = Observer(), Observer()

    with fake_gpu():
        observing, values = KIND.observing(spec, names, max_batch=2), KIND.activations(spec, names, max_batch=2)
        seen, given = infer(observing, images), infer(values, images)
        for name in names:
            there.observe(name, seen[name])
            here.observe(name, given[name])
        observing.close()
        values.close()

    assert there.histograms == here.histograms
