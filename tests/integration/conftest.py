import shutil

import pytest

from tests.support.device_root import DeviceRoot
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
