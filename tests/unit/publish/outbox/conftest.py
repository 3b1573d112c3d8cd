import pytest

from tests.support.spool_life import Life


@pytest.fixture
def life(tmp_path):
    return Life(tmp_path)
