"""What holds for every test."""

from __future__ import annotations

import logging
import signal
from collections import Counter

import pytest
from hypothesis import settings

settings.register_profile("edge", deadline=None)  # how long an example takes tells of the machine, which may be loaded
settings.load_profile("edge")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Begun in the background: a shell then ignores SIGINT for all that comes after. A command that a test interrupts
    # gets the signals that a terminal would give it, because a handler of ours is not inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    """Order what several processes share: a file of one test that takes five minutes first, then the largest files.

    By itself xdist would begin with the largest ones, and end with one process that waits for the other.
    """
    if hasattr(config, "workerinput"):
        tests = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path.name != "test_soak.py", -tests[item.path]))


@pytest.fixture(autouse=True)
def _log_level_of_its_own():
    """A command that runs in this process sets how much is logged for good; every test starts with all of it."""
    logging.getLogger("edge").setLevel(logging.NOTSET)
