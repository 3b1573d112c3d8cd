"""The CPU time of a reading thread, asked by others."""

import sys
import threading
import time

import pytest

from edge.media.threads import Effort


@pytest.fixture
def quick_turns():
    """Let threads take turns after each microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_it_can_be_asked_while_its_thread_ends(quick_turns):
    effort, is_over = Effort(), threading.Event()

    def begin_and_end():
        for _ in range(100_000):
            effort.begin()
            effort.end()
        is_over.set()

    thread = threading.Thread(target=begin_and_end)
    thread.start()
    asked = [effort.fruitless_s]
    while not is_over.is_set():
        asked.append(effort.fruitless_s)
    thread.join()

    assert len(asked) > 100
    assert asked[-1] > 0


def test_what_a_thread_has_spent_without_fruit_is_known_behind_its_end():
    effort, spent_s = Effort(), []

    def spend():
        effort.begin()
        while time.thread_time() < 0.05:
            pass
        spent_s.append(time.thread_time())
        effort.end()

    thread = threading.Thread(target=spend)
    thread.start()
    thread.join()

    assert effort.fruitless_s >= spent_s[0]
