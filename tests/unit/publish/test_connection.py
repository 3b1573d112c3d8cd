import select

from edge.publish.mqtt.client import Waker


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
