import pytest

from tests.support.device_releases import make_device


@pytest.fixture
def device(tmp_path):
    made = make_device(tmp_path)
    made.layout.software.mkdir(parents=True)
    return made
