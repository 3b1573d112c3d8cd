import os
import select

import pytest

from edge.publish.mqtt.connection import Waker


def test_a_waker_wakes_until_it_is_cleared_and_never_blocks():
    waker = Waker()
    poller = select.poll()
    poller.register(waker, select.POLLIN)
    for _ in range(100_000):
        waker.wake()
    assert poller.poll(0)
    while poller.poll(0):
        waker.clear()
    waker.wake()
    assert poller.poll(0)
    waker.close()
    waker.wake()


def test_a_closed_waker_does_not_write_to_the_file_that_has_its_number_now():
    waker = Waker()
    number = waker.fileno()
    waker.close()
    other = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        assert other == number
        waker.wake()
        waker.close()
        with pytest.raises(BlockingIOError):
            os.eventfd_read(other)
    finally:
        os.close(other)
