import pytest

from tests.support.spool_life import Life


@pytest.fixture
def life(tmp_path):
    return Life(tmp_path)


@pytest.fixture(autouse=True)
def _no_life_outlives_its_test():
    yield
    Life.end_all()
