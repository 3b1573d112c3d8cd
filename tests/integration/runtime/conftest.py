import contextlib

import pytest

from tests.support.deployable import deployable
from tests.support.device_releases import make_device
from tests.support.mosquitto import Collector, Mosquitto
from tests.support.runs import Run


@pytest.fixture
def run(tmp_path, model, monkeypatch):
    made = Run(tmp_path, model, monkeypatch)
    yield made
    made.end_all()


@pytest.fixture
def device(tmp_path, monkeypatch):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    return make_device(tmp_path / "root")


@pytest.fixture
def release(device, tmp_path):
    return deployable(device, tmp_path / "source")


@pytest.fixture
def broker(tmp_path):
    with Mosquitto(tmp_path / "mosquitto") as started:
        yield started


@pytest.fixture
def subscribe():
    with contextlib.ExitStack() as stack:

        def make(port):
            collector = Collector(port)
            stack.callback(collector.close)
            return collector

        yield make
