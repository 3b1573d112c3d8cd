import pytest

from tests.support.odd_registry import OddRegistry
from tests.support.pulling import PullingDevice
from tests.support.registry import LOGIN


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
