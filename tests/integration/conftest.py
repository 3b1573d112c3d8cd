import shutil

import pytest

from tests.support import models
from tests.support.clips import write_clip
from tests.support.device_root import DeviceRoot
from tests.support.registry import Registry


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return models.yolov8(tmp_path_factory.mktemp("model") / "tiny.onnx")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clip") / "clip.mp4", count=60)


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
