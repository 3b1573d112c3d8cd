"""What holds for every test."""

from __future__ import annotations

import logging
import signal

import pytest
from hypothesis import settings

settings.register_profile("edge", deadline=None)  # how long an example takes tells of the machine, which may be loaded
settings.load_profile("edge")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Begun in the background: a shell then ignores SIGINT for all that comes after. A command that a test interrupts
    # gets the signals that a terminal would give it, because a handler of ours is not inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _log_level_of_its_own():
    """A command that runs in this process sets how much is logged for good; every test starts with all of it."""
    logging.getLogger("edge").setLevel(logging.NOTSET)
