import pytest

from tests.support.device_root import DeviceRoot
from tests.support.sshd import Sshd


@pytest.fixture
def device(tmp_path):
    root = DeviceRoot(tmp_path)
    yield root
    root.stop()


@pytest.fixture
def sshd(tmp_path, device):
    with Sshd(tmp_path / "sshd", command=device.command) as server:
        yield server
