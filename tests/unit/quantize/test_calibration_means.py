"""The means of channels over images: those of numpy, whatever the batch."""

import numpy as np
import pytest

from edge.engine.averaging import Averaging
from edge.engine.openvino.engine import OpenVinoActivations
from edge.engine.tensorrt.kind import KIND as TENSORRT
from edge.media.images import read_image
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import corrected_tensors
from edge.quantize.new_tables import MeansOfEach, mean_of_all
from edge.quantize.subject import find_images
from tests.support import models
from tests.support.clips import draw
from tests.support.fake_gpu import fake_gpu
from tests.support.onnxruntime_engine import OnnxRuntimeActivations


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("means")
    draw(folder / "images", 5)
    return models.yolov8(folder / "m.onnx"), find_images(folder / "images")[0]


def mean_of(images, engine, names, on_item=lambda: None):
    work = MeansOfEach(kind=None, forms=None, max_batch=1, names=names)
    return mean_of_all(work.run(engine, images, read=read_image, on_item=on_item))


def means_by(kind, place, *, max_batch):
    path, images = place
    names, steps = corrected_tensors(load_graph(path)), []
    spec = inspect_model(path)
    engine = Averaging(kind(spec, names, max_batch=max_batch), names)
    found = mean_of(images, engine, names, lambda: steps.append(1))
    engine.close()
    assert len(steps) == len(images)
    return found


def test_they_are_those_of_another_engine_of_every_channel(place):
    ours = means_by(OpenVinoActivations, place, max_batch=1)
    theirs = means_by(OnnxRuntimeActivations, place, max_batch=1)

    assert ours.keys() == theirs.keys()
    assert len(ours["images"]) == 3
    for name, means in ours.items():
        np.testing.assert_allclose(means, theirs[name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_the_input_has_the_mean_of_the_pixels(place):
    counts = {}

    class Pixels:
        """Gives out the canvas itself."""

        name, max_batch, canvases = "pixels", 2, tuple(np.zeros((2, 96, 96, 3), np.uint8) for _ in range(2))
        preprocess = inspect_model(place[0]).preprocess

        def start(self, index, count):
            counts[index] = count

        def wait(self, index):
            return {"images": self.canvases[index][: counts[index]].transpose(0, 3, 1, 2).astype(np.float32)}

    found = mean_of(place[1], Averaging(Pixels(), ["images"]), ["images"])
    ours = means_by(OpenVinoActivations, place, max_batch=1)["images"]

    np.testing.assert_allclose(np.array(found["images"]) / 255, ours, rtol=1e-3)


@pytest.mark.parametrize("max_batch", [2, 3, 8])
def test_the_batch_changes_no_bit(place, max_batch):
    assert means_by(OpenVinoActivations, place, max_batch=max_batch) == means_by(
        OpenVinoActivations, place, max_batch=1
    )


def test_an_engine_that_adds_on_its_device_gives_what_its_values_give(place):
    path, images = place
    spec, names = inspect_model(path), corrected_tensors(load_graph(path))

    with fake_gpu():
        averaging = TENSORRT.averaging(spec, names, max_batch=3)
        there = mean_of(images, averaging, names)
        averaging.close()
        here = means_by(TENSORRT.activations, place, max_batch=3)

    assert there == here
