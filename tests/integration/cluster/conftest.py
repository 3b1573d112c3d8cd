"""A small model with labelled images, a scheduler with two workers, and what edge-deploy makes alone of the former."""

import pytest

from edge.model.inspect import inspect_model
from tests.support.clips import draw
from tests.support.command_line import typed
from tests.support.dask_cluster import DaskCluster
from tests.support.few_layers import few_layers, write_labels


@pytest.fixture(scope="session")
def origin(tmp_path_factory):
    """A model, 24 images in `images`, labels of them."""
    place = tmp_path_factory.mktemp("cluster")
    model = few_layers(place / "m.onnx")
    write_labels(place / "labels", inspect_model(model), draw(place / "images", 24))
    return place


@pytest.fixture(scope="session")
def alone(origin):
    """What one process makes of it: the table of a search."""
    typed(origin, "calibrate", "m.onnx", "--images", "images", "-o", "alone.calib.json")
    return (origin / "alone.calib.json").read_bytes()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = DaskCluster(tmp_path_factory.mktemp("dask"))
    made.start_worker()
    made.start_worker()
    yield made
    made.close()


@pytest.fixture
def empty_cluster(tmp_path):
    made = DaskCluster(tmp_path / "dask")
    yield made
    made.close()
