import pytest

from edge.device.device import Device
from edge.device.layout import Layout


@pytest.fixture
def device(tmp_path):
    """One on which nothing was put yet."""
    made = Device(Layout(tmp_path))
    made.durable.make_dirs(made.layout.var)
    return made
