"""What holds for every test."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _log_level_of_its_own():
    """A command that runs in this process sets how much is logged for good; every test starts with all of it."""
    logging.getLogger("edge").setLevel(logging.NOTSET)
