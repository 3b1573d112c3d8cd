"""The stream under paho, over a pair of sockets, and what wakes who waits at it."""

import select
import socket

import pytest

from edge.publish.mqtt.client import Waker
from edge.publish.mqtt.stream import PacketStream
from tests.support.mosquitto import PINGRESP, PUBACK, packet


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield PacketStream(ours), theirs


def test_what_was_queued_leaves_in_one_piece_and_in_order_with_what_paho_sends(ends):
    stream, broker = ends
    stream.queue(b"one")
    stream.queue(b"two")
    stream.send(b"ping")

    assert not stream.has_unsent
    assert broker.recv(100) == b"onetwoping"


def test_a_socket_that_is_full_takes_the_rest_later_and_in_order(ends):
    stream, broker = ends
    sent = b"".join(index.to_bytes(4, "big") for index in range(1_000_000))
    stream.queue(sent)
    assert not stream.flush()
    assert stream.has_unsent
    assert stream.send(b"goodbye") == 7

    received = b""
    while len(received) < len(sent) + 7:
        received += broker.recv(1 << 20)
        stream.flush()
    assert received == sent + b"goodbye"
    assert not stream.has_unsent


def test_packets_come_whole_however_they_were_cut(ends):
    stream, broker = ends
    wanted = [packet(PUBACK, b"\x00\x01"), packet(PINGRESP, b""), packet(PUBACK, b"\x00\x02" + b"x" * 200)]
    found = []
    for byte in b"".join(wanted):
        broker.send(bytes([byte]))
        stream.receive()
        while (one := stream.next_packet()) is not None:
            found.append(one)
    assert found == wanted

    broker.send(b"".join(wanted))
    stream.receive()
    assert [stream.next_packet() for _ in range(4)] == [*wanted, None]


def test_paho_reads_the_packet_handed_over_and_then_has_to_wait(ends):
    stream, broker = ends
    broker.send(b"\x40\x02\x00\x01")
    stream.receive()
    with pytest.raises(BlockingIOError):
        stream.recv(1)
    stream.hand_over(b"\xd0\x00")

    assert [stream.recv(1), stream.recv(1)] == [b"\xd0", b"\x00"]
    with pytest.raises(BlockingIOError):
        stream.recv(1)
    assert not stream.is_over


def test_paho_is_told_of_an_end_behind_the_last_packet(ends):
    stream, broker = ends
    broker.send(b"\xe0\x00")
    broker.shutdown(socket.SHUT_WR)
    stream.receive()
    last = stream.next_packet()
    stream.receive()
    assert stream.is_over
    stream.hand_over(last)

    assert [stream.recv(1), stream.recv(1), stream.recv(1)] == [b"\xe0", b"\x00", b""]


def test_paho_is_told_of_a_loss(ends):
    stream, _ = ends
    stream._inner.close()
    stream.receive()

    assert stream.is_over
    with pytest.raises(OSError, match="Bad file descriptor"):
        stream.recv(1)


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
