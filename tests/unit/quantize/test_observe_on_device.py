"""A calibration by an engine that counts on its device is that of the host's own counting, to the bit."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from edge.calibrate.histogram import Method
from edge.engine.tensorrt.kind import KIND
from edge.errors import CalibrationError
from edge.quantize.calibrate import calibrate
from edge.quantize.subject import CalibrationOptions
from edge.types import Observed
from tests.support import models
from tests.support.clips import draw
from tests.support.fake_gpu import fake_gpu

pytestmark = pytest.mark.slow_but(reason="further models and methods: the first row of each test is quick")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("observed")
    draw(folder / "images", 5)
    return folder


@pytest.fixture(scope="module", params=["yolov8", "yolov5-fixed-at-2"])
def model(request, place):
    family, _, is_fixed = request.param.partition("-")
    return getattr(models, family)(place / f"{request.param}.onnx", batch=2 if is_fixed else 1)


class _Values:
    """Gives the values that the GPU holds, as if it could not count."""

    def __init__(self, engine, largest_of):
        self._engine, self._largest_of = engine, largest_of

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def wait(self, index):
        found: dict[str, Observed] = dict(self._engine.wait(index))
        for name in self._largest_of:
            largest = np.abs(found[name]).max()
            found[name] = np.full(len(found[name]), largest, np.float32)
        return found


def _giving_values():
    def observing(spec, tensors, *, largest_of=(), max_batch=1, content=None):
        engine = KIND.activations(spec, (*tensors, *largest_of), max_batch=max_batch, content=content)
        return _Values(engine, largest_of)

    return SimpleNamespace(name=KIND.name, observing=observing)


@pytest.mark.parametrize("max_batch", [1, 3])
@pytest.mark.parametrize("method", [Method.ENTROPY, Method.PERCENTILE])
def test_the_table_and_the_histograms_are_those_of_counting_on_the_host(place, model, method, max_batch):
    options = CalibrationOptions(model=model, images=place / "images", method=method, max_batch=max_batch)

    with fake_gpu() as device:
        with device.counted() as counted:
            found = calibrate(options, KIND)
        with device.counted() as whole:
            expected = calibrate(options, _giving_values())

    assert found.table == expected.table
    assert found.observations == expected.observations
    assert counted["bytes_to_host"] < whole["bytes_to_host"]


def test_a_model_that_overflows_is_refused_in_the_same_words(place):
    path = models.yolov8(place / "overflowing.onnx")
    net = onnx.load(path)
    for node in [node for node in net.graph.node if node.op_type == "Conv"][:2]:
        weights = next(one for one in net.graph.initializer if one.name == node.input[1])
        weights.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weights) * np.float32(1e25), weights.name)
        )
    onnx.save(net, path)
    options = CalibrationOptions(model=path, images=place / "images", method=Method.MINMAX)

    told = []
    with fake_gpu():
        for kind in (KIND, _giving_values()):
            with pytest.raises(
                CalibrationError, match=r'tensor ".+": expected finite values, \d+ of \d+ are'
            ) as refused:
                calibrate(options, kind)
            told.append(refused.value.problem)

    assert told[0] == told[1]
