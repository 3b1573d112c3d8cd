"""One message that a broker does not take stops none of the others, and is named."""

import pytest

from tests.support.fake_broker import Behaviour, FakeBroker
from tests.support.wait import wait_until
from tests.support.wire_messages import birth, detections

pytestmark = pytest.mark.integration

BIG = 40  # objects: 3.6 kB


def publish_with_one_big(publisher, *, count=30, big=(15,)):
    for seq in range(1, count + 1):
        publisher.publish(detections(seq, count=BIG if seq in big else 1))


@pytest.mark.parametrize(
    ("limit", "protocol"),
    [("message_size_limit", "v5"), ("max_packet_size", "v5"), ("max_packet_size", "v3.1.1")],
)
def test_a_message_over_the_limit_of_mosquitto_is_declared_and_all_others_come(
    make_broker, make_publisher, make_collector, limit, protocol
):
    broker = make_broker(options=(f"{limit} 2000",)).start()
    collector = make_collector(broker.port)
    publisher = make_publisher(broker.port, protocol=protocol)
    publish_with_one_big(publisher)

    assert publisher.flush(20)
    wait_until(lambda: not collector.undeclared("east", 30), what="all came or are declared")
    assert set(collector.numbers()["east"]) == set(range(1, 31)) - {15}
    (gap,) = collector.payloads("/gaps")
    assert (gap["from"], gap["to"], gap["reason"]) == (15, 15, "oversize")


def test_a_limit_that_was_found_out_costs_no_further_connection(make_broker, make_publisher, make_collector, caplog):
    broker = make_broker(options=("max_packet_size 2000",)).start()
    collector = make_collector(broker.port)
    publisher = make_publisher(broker.port, protocol="v3.1.1")
    publish_with_one_big(publisher)
    assert publisher.flush(20)
    before = publisher.counts()["connections"]
    for seq in range(31, 61):
        publisher.publish(detections(seq, count=BIG if seq % 10 == 0 else 1))

    assert publisher.flush(20)
    assert publisher.counts()["connections"] == before
    wait_until(lambda: collector.declared()["east"] == {15, 40, 50, 60}, what="the gaps")
    assert "closes the connection at it" in caplog.text


def test_a_birth_message_over_the_limit_does_not_stop_the_frames(make_broker, make_publisher, make_collector):
    broker = make_broker(options=("max_packet_size 2000",)).start()
    collector = make_collector(broker.port)
    publisher = make_publisher(broker.port, protocol="v3.1.1", streams=[f"stream-number-{n:018d}" for n in range(100)])
    assert len(birth(*[f"stream-number-{n:018d}" for n in range(100)]).encode()) > 2000
    publish_with_one_big(publisher, big=())

    wait_until(lambda: len(set(collector.numbers()["east"])) == 30, what="all frames")
    wait_until(lambda: publisher.counts()["dropped"] == 1, what="the birth is given up")
    assert not collector.payloads("/info")


@pytest.mark.parametrize("reason", [0x80, 0x83, 0x97])
def test_a_refusal_that_never_passes_is_not_waited_for_without_end(make_publisher, caplog, reason):
    with FakeBroker() as fake:
        fake.behaviour.puback_reason = lambda publish: reason if b'"seq":2,' in publish.payload else 0
        publisher = make_publisher(fake.port, hold_min_s=0.01)
        for seq in range(1, 11):
            publisher.publish(detections(seq))

        assert publisher.flush(10)
        counts = publisher.counts()
        assert (counts["numbered_in_gaps"], counts["numbered_acknowledged"]) == (1, 9)
        assert f"reason=0x{reason:02X}: retrying" in caplog.text
        assert f"reason=0x{reason:02X}: given up" in caplog.text
        (gap,) = [publish.payload for publish in fake.accepted if publish.topic.endswith("gaps")]
        assert b'"from":2,"to":2' in gap
        publisher.close()


def test_a_broker_that_is_killed_again_and_again_is_not_taken_for_one_that_refuses(
    make_broker, make_publisher, make_collector
):
    broker = make_broker(is_persistent=True).start()
    collector = make_collector(broker.port)
    publisher = make_publisher(broker.port)
    assert publisher.flush(5)
    for round_ in range(6):
        broker.freeze()
        publisher.publish(detections(round_ + 1))
        wait_until(lambda: publisher.counts()["in_flight"] > 0, what="it is on its way")
        broker.kill()
        wait_until(lambda: not publisher.is_connected, what="the loss")
        broker.start()
        wait_until(lambda: publisher.is_connected, what="the reconnect")

    assert publisher.flush(10)
    assert publisher.counts()["dropped"] == 0
    assert not collector.payloads("/gaps")


def test_a_fake_broker_with_a_limit_that_it_tells_is_never_sent_more(make_publisher):
    with FakeBroker(Behaviour(maximum_packet_size=1500)) as fake:
        publisher = make_publisher(fake.port)
        publish_with_one_big(publisher, big=(3, 4, 9))

        assert publisher.flush(10)
        assert fake.violations == []
        assert publisher.counts()["connections"] == 1
        publisher.close()
