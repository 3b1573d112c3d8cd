import pytest

from tests.support import engines
from tests.support.fake_gpu import fake_gpu


@pytest.fixture(scope="module")
def every_kind():
    """All kinds of engine run here: a third one beside ours, and TensorRT over stand-ins."""
    with engines.third_kind(), fake_gpu():
        yield
