"""Attempts at once: each has an answer, one that hangs keeps nobody, and an interrupt ends all of them."""

import os
import signal
import threading
import time

import pytest

from edge.deploy.look import side_by_side
from edge.errors import ConfigError
from tests.support.wait import wait_until


def test_all_run_at_the_same_time_and_answer_in_their_order():
    meeting = threading.Barrier(3, timeout=30)

    def attempt(number):
        return lambda is_stopped: (meeting.wait(), number)[1]

    found = side_by_side({name: attempt(name) for name in "cab"}, each_s=30)

    assert list(found.items()) == [("c", "c"), ("a", "a"), ("b", "b")]


def test_more_than_fit_at_once_have_their_turn():
    found = side_by_side({str(number): lambda is_stopped, n=number: n for number in range(100)}, each_s=30)

    assert list(found.values()) == list(range(100))


def test_an_error_is_an_answer_and_one_that_never_ends_is_given_up():
    never = threading.Event()

    def fails(is_stopped):
        raise ConfigError("no such thing")

    def breaks(is_stopped):
        raise KeyError("what")

    begun = time.monotonic()
    try:
        found = side_by_side({"a": fails, "b": breaks, "c": lambda is_stopped: never.wait()}, each_s=0.2)
    finally:
        never.set()

    assert time.monotonic() - begun < 20
    assert [str(found[name]) for name in "abc"] == [
        "no such thing",
        "KeyError while it was tried: 'what'",
        "no answer within 0.2 s",
    ]


def test_an_interrupt_is_not_waited_out():
    ended = threading.Event()

    def attempt(is_stopped):
        os.kill(os.getpid(), signal.SIGINT)  # as a terminal sends it: to the process, not to this thread
        wait_until(is_stopped, what="nobody waits any more")
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        side_by_side({"a": attempt}, each_s=60)

    assert ended.wait(10)
