import shutil

import pytest

from edge.model.inspect import inspect_model
from tests.support.clips import draw
from tests.support.few_layers import few_layers, write_labels


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A model, 8 images, and labels for them."""
    place = tmp_path_factory.mktemp("calibrate")
    model = few_layers(place / "m.onnx")
    write_labels(place / "labels", inspect_model(model), draw(place / "images", 8))
    return place


@pytest.fixture
def place(origin, tmp_path):
    """The same, to be changed at will."""
    shutil.copytree(origin, tmp_path / "p")
    return tmp_path / "p"
