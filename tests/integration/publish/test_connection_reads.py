"""What comes in one piece with the end of a connection, or with its beginning, is not lost."""

import contextlib
import socket
import threading

import pytest

from edge.publish.mqtt.client import Connection, Received
from edge.publish.mqtt.endpoint import Endpoint
from edge.publish.mqtt.stream import Acknowledged
from edge.publish.mqtt.trouble import BrokerError
from tests.support.fake_broker import CONNACK, PUBACK, PUBLISH, packet, parse_publish, read_packet

pytestmark = pytest.mark.slow(reason="further brokers, cuts and disks")

ACCEPTED = packet(CONNACK, b"\0\0\0")


@pytest.fixture
def serve():
    """Serve one connection by a function; return where."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def begin(talk):
        def run():
            with listener.accept()[0] as peer:
                read_packet(peer)
                talk(peer)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[0].start()
        return Endpoint(host="127.0.0.1", port=listener.getsockname()[1], client_id="edge-test")

    yield begin
    listener.close()
    for thread in threads:
        thread.join(60)


def events_until_the_end(connection):
    found = []
    with contextlib.suppress(BrokerError):
        while True:
            found += connection.poll(1.0)
    assert connection.is_lost
    connection.abandon()
    return found


def test_messages_that_come_with_the_acceptance_and_before_the_end(serve):
    messages = b"".join(packet(PUBLISH, b"\0\1t\0" + payload) for payload in (b"one", b"two", b"three"))
    connection = Connection(serve(lambda peer: peer.sendall(ACCEPTED + messages)), version=5)

    assert events_until_the_end(connection) == [Received("t", text, False) for text in (b"one", b"two", b"three")]


def test_acknowledgements_that_come_with_the_end(serve):
    received = []

    def talk(peer):
        peer.sendall(ACCEPTED)
        received.extend(parse_publish(read_packet(peer), version=5) for _ in range(3))
        answers = b"".join(packet(PUBACK, one.packet_id.to_bytes(2, "big") + b"\0\0") for one in received[:2])
        peer.sendall(answers + packet(PUBACK, b"\xff\xff"))

    connection = Connection(serve(talk), version=5)
    ids = [connection.publish("t", text, is_retained=False) for text in (b"one", b"two", b"three")]

    assert events_until_the_end(connection) == [Acknowledged(packet_id, 0) for packet_id in ids[:2]]
    assert [(one.packet_id, one.qos, one.payload) for one in received] == [
        (ids[0], 1, b"one"),
        (ids[1], 1, b"two"),
        (ids[2], 1, b"three"),
    ]


def test_an_id_that_is_not_answered_yet_is_not_given_again(serve):
    def talk(peer):
        peer.sendall(ACCEPTED)
        for number in range(65_535):
            one = parse_publish(read_packet(peer), version=5)
            if number:
                peer.sendall(packet(PUBACK, one.packet_id.to_bytes(2, "big")))

    connection = Connection(serve(talk), version=5)
    first = connection.publish("t", b"", is_retained=False)
    rounds, together = 14, 4681
    assert first + rounds * together == 65_535
    for _ in range(rounds):
        unanswered = {connection.publish("t", b"", is_retained=False) for _ in range(together)}
        while unanswered:
            unanswered -= {event.packet_id for event in connection.poll(1.0)}

    assert [connection.publish("t", b"", is_retained=False) for _ in range(2)] == [first + 1, first + 2]
    connection.abandon()
