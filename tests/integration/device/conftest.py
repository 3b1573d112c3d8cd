import pytest

from tests.support.people import people


@pytest.fixture(scope="module")
def crowd():
    return people()
