"""A tiny model with a table, which several of these tests build."""

import pytest

from edge.calibrate.table import read_table, write_table
from edge.model.inspect import inspect_model
from tests.support import models
from tests.support.fake_gpu import Handed, Tabled
from tests.support.tables import table_of


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    path = models.yolov8(folder / "model.onnx")
    write_table(folder / "table.json", table_of(path))
    return inspect_model(path), read_table(folder / "table.json")


@pytest.fixture
def forms(calibrated):
    return Tabled(*calibrated)


@pytest.fixture
def handed():
    return Handed()


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return inspect_model(models.yolov8(tmp_path_factory.mktemp("model") / "model.onnx"))
