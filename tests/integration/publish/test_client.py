"""`edge.client` over a real broker, from the real publisher, while connections break; held by the checker."""

import threading

import msgspec
import pytest

from edge.client import (
    Client,
    CountsMessage,
    DetectionsMessage,
    EventMessage,
    InfoMessage,
    Late,
    Missing,
    OccupancyMessage,
    StateMessage,
)
from edge.errors import ConfigError
from tests.support.logged import logged
from tests.support.tcp_proxy import AbortingProxy
from tests.support.wait import wait_until
from tests.support.wire_messages import counts, detections, event, occupancy, publish_frames

pytestmark = pytest.mark.slow_but(
    "test_connections_that_break_on_both_sides_lose_nothing_and_keep_the_order",
    "test_what_waited_for_the_broker_stands_in_its_place_and_what_was_let_go_is_named",
    reason="further brokers, cuts and disks",
)

ROOT = "edge/v1/north/gate-01"


@pytest.fixture
def listening():
    """Start clients that collect what they are given, in threads that end with the test."""
    begun = []

    def listen(port, **options):
        client = Client("127.0.0.1", port=port, site="north", tls=False, **options)
        items, stop = [], threading.Event()
        thread = threading.Thread(target=client.run, args=(items.append,), kwargs={"until": stop.is_set})
        thread.start()
        begun.append((client, stop, thread))
        return items

    yield listen
    for client, stop, thread in begun:
        stop.set()
        thread.join(60)
        client.close()
        assert not thread.is_alive()


def seqs(items, kind=DetectionsMessage):
    return [item.seq for item in list(items) if isinstance(item, kind)]


def of_type(items, kind):
    return [item for item in list(items) if isinstance(item, kind)]


def test_connections_that_break_on_both_sides_lose_nothing_and_keep_the_order(
    broker, collector, make_publisher, listening
):
    with AbortingProxy(broker.port, [40, 25, 60, 33]) as devices, AbortingProxy(broker.port) as ours:
        items = listening(ours.port, wait_s=60.0)
        publisher = make_publisher(devices.port)
        for seq in range(1, 401):
            publisher.publish(detections(seq))
            if seq == 200:
                wait_until(lambda: 20 in seqs(items), what="some have come")
                ours.cut()
        assert publisher.flush(60)
        wait_until(lambda: 400 in seqs(items), what="the last number")

    assert devices.connections >= 5
    assert ours.connections >= 2
    wait_until(lambda: not collector.undeclared("east", 400), what="the independent subscriber has all")
    collector.findings().prove({("east", 41): 400}, most_duplicates=4 * publisher.counts()["largest_window"])
    assert seqs(items) == list(range(1, 401))
    assert of_type(items, (Missing, Late)) == []


def test_what_waited_for_the_broker_stands_in_its_place_and_what_was_let_go_is_named(
    make_broker, make_publisher, make_collector, listening
):
    broker = make_broker(is_persistent=True).start()
    collector = make_collector(broker.port)
    items = listening(broker.port, wait_s=60.0)
    publisher = make_publisher(broker.port, max_bytes=100_000, live_s=0.0)
    publisher.publish(detections(1))
    assert publisher.flush(60)
    broker.stop()
    wait_until(lambda: not publisher.is_connected, what="the loss is noticed")
    publish_frames(publisher, range(2, 1001))
    broker.start()
    assert publisher.flush(60)
    publisher.publish(detections(1001))
    wait_until(lambda: 1001 in seqs(items), what="the last number")

    wait_until(lambda: not collector.undeclared("east", 1001), what="the independent subscriber has all")
    received = collector.findings().received["east", 41].keys()
    assert set(collector.numbers()["east"]) == set(received)
    assert len(received) < 1001
    lines = [(item.seq, item.seq) if isinstance(item, DetectionsMessage) else (item.first, item.last) for item in
             of_type(items, (DetectionsMessage, Missing))]  # fmt: skip
    assert [number for first, last in lines for number in range(first, last + 1)] == list(range(1, 1002))
    assert set(seqs(items)) == set(received)
    assert {(lost.reason, lost.is_exact) for lost in of_type(items, Missing)} == {("spool-bytes", True)}
    assert any(item.replayed for item in of_type(items, DetectionsMessage))


def test_what_the_broker_has_lost_is_named_after_a_while_and_comes_late(broker, make_publisher, listening):
    items = listening(broker.port, wait_s=0.3)
    publisher = make_publisher(broker.port)
    for seq in (1, 2, 5):
        publisher.publish(detections(seq))
    wait_until(lambda: 5 in seqs(items), what="the number behind the loss")
    publisher.publish(detections(4))
    wait_until(lambda: of_type(items, Late), what="the late one")

    kinds = (DetectionsMessage, Missing, Late)
    one, two, lost, five, late = of_type(items, kinds)
    assert [one.seq, two.seq, five.seq, late.message.seq] == [1, 2, 5, 4]
    assert (lost.device, lost.stream, lost.epoch, lost.of) == ("gate-01", "east", 41, "detections")
    assert (lost.first, lost.last, lost.reason, lost.is_exact) == (3, 4, None, False)


def test_events_occupancy_and_states_come_typed_and_what_lies_is_passed_over(
    broker, collector, make_publisher, listening, caplog
):
    items = listening(broker.port)
    publisher = make_publisher(broker.port)
    for message in (event(1), occupancy(), counts(), event(2, kind="leave")):
        publisher.publish(message)
    stranger = msgspec.structs.replace(detections(1), device="gate-02").encode()
    for _ in range(2):
        collector._client.publish(f"{ROOT}/streams/east/detections", stranger, qos=1)
    collector._client.publish(f"{ROOT}/streams/east/events", b"\xff", qos=1)
    online = of_type(wait_for(items, StateMessage), StateMessage)[0]
    for other in (-1, +1):  # a replaced board may have had higher ones
        session = online.session + other * 1_000_000
        will = msgspec.structs.replace(online, state="offline", session=session, reason="connection lost")
        collector._client.publish(f"{ROOT}/state", will.encode(), qos=1)
    wait_until(lambda: seqs(items, EventMessage) == [1, 2], what="the events")
    publisher.close()
    wait_until(lambda: [one.state for one in of_type(items, StateMessage)][-1] == "offline", what="the goodbye")

    assert [one.kind for one in of_type(items, EventMessage)] == ["enter", "leave"]
    assert of_type(items, OccupancyMessage)[0].zones == {"yard": {"car": 1}}
    assert of_type(items, CountsMessage)[0].objects == {"car": 2, "person": 0}
    assert of_type(items, InfoMessage)[0].streams == ["east"]
    assert {one.reason for one in of_type(items, StateMessage) if one.state == "offline"} == {"stopped"}
    assert seqs(items) == []
    assert logged(caplog).count("message-of-another-device") == 1


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "died"])
def test_a_board_that_is_replaced_is_heard_whatever_its_epoch(broker, make_publisher, listening, is_stopped):
    before = make_publisher(broker.port, epoch=2000)
    wait_until(lambda: before.is_connected, what="its state is kept")
    items = listening(broker.port, wait_s=0.3)
    before.publish(detections(1, epoch=2000))
    wait_until(lambda: seqs(items) == [1], what="the first")
    if is_stopped:
        before.close()

    board = make_publisher(broker.port, epoch=1000, client_id="edge-new")  # with one id they would close each other
    board.publish(detections(1, epoch=1000))
    wait_until(lambda: seqs(items) == [1, 1], what="that of the new board")
    board.close()
    wait_until(lambda: of_type(items, StateMessage)[-1].epoch == 1000, what="its states")
    wait_until(lambda: of_type(items, StateMessage)[-1].state == "offline", what="its goodbye")

    assert of_type(items, (Late, Missing)) == []
    assert [one.epoch for one in of_type(items, DetectionsMessage)] == [2000, 1000]


def wait_for(items, kind):
    wait_until(lambda: of_type(items, kind), what=kind.__name__)
    return items


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"device": "a/b"}, "device: expected a name"),
        ({"site": "North"}, r"broker: .*site"),
        ({"port": 0}, r"broker: .*port"),
        ({"wait_s": float("nan")}, "wait_s: expected seconds"),
        ({"wait_s": -1.0}, "wait_s: expected seconds"),
        ({"most_held": 0}, "most_held: expected 1 or more"),
        ({"tls": "no-such.crt"}, "no-such.crt"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, problem):
    with pytest.raises(ConfigError, match=problem):
        Client("127.0.0.1", **options)
