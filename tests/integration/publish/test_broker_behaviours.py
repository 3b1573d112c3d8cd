"""What mosquitto does of the ways in which brokers were seen to refuse: the innocent stream gets all of its own.

The others are functions, on a clock of their own (tests/unit/publish/test_suspects.py).
"""

import pytest

from tests.support.wait import wait_until
from tests.support.wire_messages import birth, detections, publish_frames

BIG = 60  # objects
NONE, REFUSED, OVERSIZE = frozenset(), frozenset({"refused"}), frozenset({"oversize"})
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


@pytest.mark.promised(reason="no message stops the others")
def test_a_birth_message_over_the_limit_does_not_stop_the_frames(make_broker, make_publisher, make_collector):
    broker = make_broker(options=("max_packet_size 2000",)).start()
    collector = make_collector(broker.port)
    publisher = make_publisher(broker.port, protocol="v3.1.1", streams=[f"stream-number-{n:018d}" for n in range(100)])
    assert len(birth(*[f"stream-number-{n:018d}" for n in range(100)]).encode()) > 2000
    publish_frames(publisher, range(1, 31))

    wait_until(lambda: len(set(collector.numbers()["east"])) == 30, what="all frames")
    wait_until(lambda: publisher.counts()["dropped"] == 1, what="the birth is given up")
    assert not collector.payloads("/info")


def test_a_broker_that_is_killed_again_and_again_is_not_taken_for_one_that_refuses(
    make_broker, connected, make_collector
):
    broker = make_broker(is_persistent=True).start()
    collector = make_collector(broker.port)
    publisher = connected(broker.port)
    for round_ in range(6):
        broker.freeze()
        publisher.publish(detections(round_ + 1))
        wait_until(lambda: publisher.counts()["in_flight"] > 0, what="it is on its way")
        broker.kill()
        wait_until(lambda: not publisher.is_connected, what="the loss")
        broker.start()
        wait_until(lambda: publisher.is_connected, what="the reconnect")

    assert publisher.flush(60)
    assert publisher.counts()["dropped"] == 0
    assert not collector.payloads("/gaps")
