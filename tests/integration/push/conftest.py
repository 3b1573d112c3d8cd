import pytest

from edge.transport.channel import ChildChannel
from tests.support.real_units import RealUnits
from tests.support.sshd import Sshd


@pytest.fixture
def device(root):
    return root


@pytest.fixture
def push_real(device):
    """Return what pushes to the device where each unit is its own command, as a process."""
    yield lambda bundle: device.push(bundle, lambda: ChildChannel([*device.command, "real"]))
    RealUnits(device.root).stop()


@pytest.fixture
def sshd(tmp_path, device):
    with Sshd(tmp_path / "sshd", command=device.command) as server:
        yield server
