from __future__ import annotations

import shutil

import pytest

from edge.config.schema import MqttConfig
from edge.deploy.rollout.hearing import Hearing
from tests.support.device_root import DeviceRoot
from tests.support.field_fleet import FieldFleet
from tests.support.mosquitto import Mosquitto
from tests.support.registry import Registry


@pytest.fixture
def root(tmp_path):
    (tmp_path / "device").mkdir()
    made = DeviceRoot(tmp_path / "device")
    yield made
    made.stop()


@pytest.fixture
def registry(tmp_path):
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed")
    with Registry(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def broker(tmp_path):
    with Mosquitto(tmp_path / "broker", is_verbose=False) as running:
        yield running


@pytest.fixture
def mqtt(broker):
    return MqttConfig(host=broker.host, port=broker.port, site="workshop", tls=False)


@pytest.fixture
def hearing(mqtt):
    with Hearing(mqtt, credential=None, base_dir=None) as made:
        yield made


@pytest.fixture
def fleet(broker, registry):
    return FieldFleet(broker.port, f"{registry.host}/farms/gates")
