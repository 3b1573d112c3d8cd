from __future__ import annotations

import shutil

import pytest

from tests.support.device_root import DeviceRoot
from tests.support.odd_registry import OddRegistry
from tests.support.pulling import PullingDevice
from tests.support.registry import LOGIN, Registry


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
def device(root, registry):
    return PullingDevice(root, registry.reference("stable-all"), registry.certificates.ca, LOGIN)


@pytest.fixture
def odd(tmp_path):
    with OddRegistry(tmp_path / "odd") as running:
        yield running


@pytest.fixture
def led(root, odd):
    """A device that asks the odd registry."""
    return PullingDevice(root, odd.reference(), odd.ca)
