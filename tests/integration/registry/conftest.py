import pytest

from tests.support.pulling import PullingDevice, pulling_from
from tests.support.registry import OddRegistry


@pytest.fixture
def device(root, registry):
    return pulling_from(registry, root)


@pytest.fixture
def odd(tmp_path):
    with OddRegistry(tmp_path / "odd") as running:
        yield running


@pytest.fixture
def led(root, odd):
    return PullingDevice(root, odd.reference(), odd.ca)
