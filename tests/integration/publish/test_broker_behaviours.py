"""The ways in which brokers were seen to break, refuse, hold and pass over: what the innocent stream gets of each.

Two streams and six announcements. `east` does nothing wrong; every hundredth frame of `west` is large. The rows are
brokers as functions, on a clock of their own; mosquitto does what it can of them behind.
"""

import pytest

from tests.support.model_broker import disconnect, run
from tests.support.wait import wait_until
from tests.support.wire_messages import detections

pytestmark = pytest.mark.integration

BIG = 60  # objects
BIG_BYTES = 3000
WITHIN_S = 31.0
NONE, REFUSED, OVERSIZE = frozenset(), frozenset({"refused"}), frozenset({"oversize"})
CLOSES, NEVER = "close", None

IS = {
    "one message": lambda message: "/west/" in message.topic and b'"seq":7,' in message.payload,
    "large messages": lambda message: message.size_bytes > BIG_BYTES,
    "one topic": lambda message: "/west/" in message.topic,
    "retained messages": lambda message: message.is_retained,
    "Home Assistant's topics": lambda message: message.topic.startswith("homeassistant/"),
}
# what it does, at what, the least share of the innocent stream in its time, and what is declared of the other one
BEHAVIOURS = [
    ("closes the connection", CLOSES, "one message", 0.99, REFUSED),
    ("closes the connection", CLOSES, "large messages", 0.99, OVERSIZE),
    ("closes the connection", CLOSES, "one topic", 0.99, REFUSED),
    ("closes the connection", CLOSES, "retained messages", 0.93, NONE),
    ("closes the connection", CLOSES, "Home Assistant's topics", 0.93, NONE),
    ("says DISCONNECT 0x87", disconnect(0x87), "one message", 0.99, REFUSED),
    ("says DISCONNECT 0x87", disconnect(0x87), "one topic", 0.99, REFUSED),
    ("says DISCONNECT 0x87", disconnect(0x87), "retained messages", 0.93, NONE),
    ("says DISCONNECT 0x87", disconnect(0x87), "Home Assistant's topics", 0.93, NONE),
    ("says DISCONNECT 0x95", disconnect(0x95), "large messages", 0.99, OVERSIZE),
    ("answers 0x87", 0x87, "one message", 0.99, REFUSED),
    ("answers 0x87", 0x87, "one topic", 0.99, REFUSED),
    ("answers 0x87", 0x87, "retained messages", 0.99, NONE),
    ("answers 0x87", 0x87, "Home Assistant's topics", 0.99, NONE),
    ("answers 0x95", 0x95, "large messages", 0.99, OVERSIZE),
    ("answers 0x97", 0x97, "one message", 0.99, REFUSED),
    ("answers 0x97", 0x97, "one topic", 0.99, REFUSED),
    ("answers 0x97", 0x97, "retained messages", 0.99, NONE),
    ("answers 0x97", 0x97, "Home Assistant's topics", 0.99, NONE),
    ("answers 0x80", 0x80, "one message", 0.99, REFUSED),
    ("answers 0x80", 0x80, "one topic", 0.99, REFUSED),
    ("never answers", NEVER, "one message", 0.99, REFUSED),
    ("never answers", NEVER, "large messages", 0.99, REFUSED),
    ("never answers", NEVER, "one topic", 0.99, REFUSED),
    ("never answers", NEVER, "retained messages", 0.99, NONE),
    ("never answers", NEVER, "Home Assistant's topics", 0.99, NONE),
]


def big_in_a_hundred(stream, seq):
    return BIG if stream == "west" and seq % 100 == 50 else 1


@pytest.mark.parametrize("round_trip_s", [0.002, 0.3], ids=["near", "far"])
@pytest.mark.parametrize(
    ("act", "at", "share", "reasons"),
    [row[1:] for row in BEHAVIOURS],
    ids=[f"{what} at {at}" for what, _, at, _, _ in BEHAVIOURS],
)
def test_the_innocent_stream_gets_its_share_and_the_rest_is_declared_with_its_reason(
    act, at, share, reasons, round_trip_s
):
    outcome, end_s = run(
        lambda message: act if IS[at](message) else 0,
        seconds=120,
        objects=big_in_a_hundred,
        announcements=6,
        round_trip_s=round_trip_s,
        receive_maximum=100,
    )

    assert outcome.share_in_time("east", end_s) >= share
    assert outcome.declared["east"] == {}
    assert outcome.reasons("west") == reasons
    assert outcome.unaccounted("east", end_s - WITHIN_S) == outcome.unaccounted("west", end_s - WITHIN_S) == []
    assert outcome.undeclared == 0


WEST = frozenset(range(1, 31))


@pytest.mark.promised(reason="no message stops the others")
@pytest.mark.parametrize(
    ("option", "protocol", "lost", "reasons"),
    [
        ("max_packet_size 2000", "v3.1.1", {15}, OVERSIZE),  # it closes the connection without a word
        ("max_packet_size 2000", "v5", {15}, OVERSIZE),  # it says so in its CONNACK
        ("message_size_limit 2000", "v5", {15}, OVERSIZE),  # it answers 0x95
        ("acl_file {acl}", "v5", WEST, REFUSED),  # it answers 0x87
        ("retain_available false", "v5", set(), NONE),
        ("max_inflight_messages 1", "v5", set(), NONE),
    ],
)
def test_a_mosquitto_that_does_so_takes_all_of_the_innocent_stream(
    make_broker, make_publisher, make_collector, tmp_path, option, protocol, lost, reasons
):
    acl = tmp_path / "acl"
    acl.write_text("topic deny edge/v1/north/gate-01/streams/west/#\ntopic readwrite #\n")
    acl.chmod(0o700)
    broker = make_broker(options=(option.format(acl=acl),)).start()
    collector = make_collector(broker.port)
    publisher = make_publisher(broker.port, protocol=protocol, streams=("east", "west"))
    for seq in WEST:
        publisher.publish(detections(seq))
        publisher.publish(detections(seq, stream="west", count=BIG if seq == 15 and lost == {15} else 1))

    assert publisher.flush(60)
    wait_until(
        lambda: not collector.undeclared("east", 30) | collector.undeclared("west", 30), what="all is accounted for"
    )
    assert (set(collector.numbers()["east"]), set(collector.numbers()["west"])) == (WEST, WEST - lost)
    assert {gap["reason"] for gap in collector.payloads("/gaps")} == reasons
