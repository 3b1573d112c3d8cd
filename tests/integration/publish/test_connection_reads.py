"""What comes in one piece with the end of a connection, or with its beginning, is not lost; and brokers far away."""

import contextlib
import socket
import threading
import time

import pytest

from edge.publish.mqtt.client import Connection, Received
from edge.publish.mqtt.endpoint import Endpoint
from edge.publish.mqtt.stream import Acknowledged
from edge.publish.mqtt.trouble import BrokerError
from tests.support.mosquitto import CONNACK, PUBACK, PUBLISH, packet, parse_publish, read_packet
from tests.support.tcp_proxy import DelayingProxy
from tests.support.wait import QuietWatch, wait_until
from tests.support.wire_messages import detections, publish_frames

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


@pytest.mark.parametrize("protocol", ["v5", "v3.1.1"])
@pytest.mark.parametrize("round_trip_s", [0.12, 0.3])
def test_a_far_broker_takes_as_much_as_a_near_one(make_broker, make_publisher, make_collector, protocol, round_trip_s):
    broker = make_broker(options=("max_inflight_messages 1000",)).start()
    collector = make_collector(broker.port)
    with DelayingProxy(broker.port, round_trip_s=round_trip_s) as proxy:
        publisher = make_publisher(proxy.port, protocol=protocol, live_s=60)
        publish_frames(publisher, range(1, 1501))
        watch = QuietWatch()
        assert publisher.flush(60)
        assert watch.seconds() < 15, "ten for each round trip would take 18 s and more"
        largest = publisher.counts()["largest_window"]
        publisher.close()

    wait_until(lambda: len(collector.numbers()["east"]) == 1500, what="all of them")
    assert collector.numbers()["east"] == list(range(1, 1501))
    assert largest > 100


def test_who_cannot_keep_up_says_so_and_keeps_live_messages_fresh(
    make_broker, connected, make_collector, caplog, monkeypatch
):
    monkeypatch.setattr("edge.publish.mqtt.window._LOOK_S", 0.5)
    broker = make_broker(options=("max_inflight_messages 20",)).start()  # mosquitto's default: 66 a second from here
    collector = make_collector(broker.port)
    stop, last = threading.Event(), [0]

    def publish():
        began_s = time.monotonic()
        while not stop.wait(0.005):
            while last[0] < 200 * (time.monotonic() - began_s):
                last[0] += 1
                publisher.publish(detections(last[0]))

    with DelayingProxy(broker.port, round_trip_s=0.3) as proxy:
        publisher = connected(proxy.port, live_s=0.5)
        thread = threading.Thread(target=publish)
        thread.start()
        wait_until(
            lambda: any(state["state"] == "degraded" for state in collector.payloads("gate-01/state")),
            what="the state says that messages come late",
        )
        newest, watch = last[0], QuietWatch()
        live = lambda: [one["seq"] for one in collector.payloads("/detections")]  # noqa: E731
        wait_until(lambda: live()[-1] >= newest, what="a live message that is newer")
        fresh_s, overtaken = watch.seconds(), collector.undeclared("east", newest)
        stop.set()
        thread.join()
        (state,) = [state for state in collector.payloads("gate-01/state") if state["state"] == "degraded"]
        assert publisher.flush(60)
        wait_until(
            lambda: collector.payloads("gate-01/state")[-1]["state"] == "online",
            what="the state says that it has caught up",
        )
        publisher.close()

    assert fresh_s < 10
    assert overtaken, "a live message does not wait for those before it"
    assert "publishing" in state["reason"]
    assert "300" in state["reason"] or "round trip" in state["reason"]
    assert "cannot keep up" in caplog.text
    late = [one["seq"] for one in collector.payloads("/replay")]
    assert late == sorted(late)
    assert all(one["replayed"] for one in collector.payloads("/replay"))
    assert live() == sorted(live())
    assert not collector.undeclared("east", last[0])
