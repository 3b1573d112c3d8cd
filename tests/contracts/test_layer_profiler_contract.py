"""What everything that times single layers promises (`edge.engine.kind.LayerProfiler`), over every kind here."""

import dataclasses

import numpy as np
import onnx
import pytest

from edge.engine.kind import load_kind
from edge.model.inspect import inspect_model
from tests.support import models
from tests.support.engines import kinds_that_run
from tests.support.tables import quantized
from tests.support.values import canvases

pytestmark = pytest.mark.usefixtures("every_kind")

KINDS = [*kinds_that_run(), "tensorrt"]
TELLS_ALL = {"openvino", "tensorrt"}  # the third kind knows only what the whole takes


@pytest.fixture(scope="module", params=[1, 2], ids=["one", "fixed-at-2"])
def model(request, tmp_path_factory):
    return models.yolox(tmp_path_factory.mktemp("models") / "m.onnx", batch=request.param)


@pytest.fixture(params=["float", "int8"])
def spec_and_content(request, model):
    spec = inspect_model(model)
    if request.param == "float":
        return spec, None
    return dataclasses.replace(spec, is_quantized=True), quantized(model).model


@pytest.fixture
def names(model):
    return [node.name for node in onnx.load(model).graph.node if node.op_type == "Conv"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_run_that_is_kept_has_a_time_by_layer(kind, spec_and_content, names):
    spec, content = spec_and_content
    profiler = load_kind(kind).profiler(spec, names, content=content)
    profiler.warm_up(canvases(spec, rows=spec.batch))
    for seed in range(3):
        profiler.run(canvases(spec, seed, spec.batch))

    times = profiler.times()
    profiler.close()

    assert set(times) == (set(names) if kind in TELLS_ALL else set())
    for seconds in times.values():
        assert (seconds.shape, seconds.dtype) == ((3,), np.float64)
        assert ((seconds >= 0) & (seconds < 60)).all()


@pytest.mark.parametrize("kind", sorted(TELLS_ALL))
def test_a_layer_that_is_not_in_the_model_has_no_time(kind, spec_and_content, names):
    spec, content = spec_and_content
    profiler = load_kind(kind).profiler(spec, [names[0], "nowhere"], content=content)
    profiler.run(canvases(spec, rows=spec.batch))

    assert set(profiler.times()) == {names[0]}
    profiler.close()
