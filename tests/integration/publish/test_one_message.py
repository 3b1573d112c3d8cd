"""One message that a broker does not take stops none of the others, and is named."""

import pytest

from tests.support.wait import wait_connected, wait_until
from tests.support.wire_messages import birth, detections

pytestmark = pytest.mark.integration

BIG = 40  # objects: 3.6 kB


def publish_with_one_big(publisher, *, count=30, big=(15,)):
    for seq in range(1, count + 1):
        publisher.publish(detections(seq, count=BIG if seq in big else 1))


@pytest.mark.promised(reason="no message stops the others")
def test_a_birth_message_over_the_limit_does_not_stop_the_frames(make_broker, make_publisher, make_collector):
    broker = make_broker(options=("max_packet_size 2000",)).start()
    collector = make_collector(broker.port)
    publisher = make_publisher(broker.port, protocol="v3.1.1", streams=[f"stream-number-{n:018d}" for n in range(100)])
    assert len(birth(*[f"stream-number-{n:018d}" for n in range(100)]).encode()) > 2000
    publish_with_one_big(publisher, big=())

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


def test_a_fake_broker_with_a_limit_that_it_tells_is_never_sent_more(make_fake, make_publisher, connected):
    fake = make_fake(maximum_packet_size=1500)
    publisher = make_publisher(fake.port)
    publish_with_one_big(publisher, big=(3, 4, 9))

    wait_connected(publisher)
    assert publisher.flush(60)
    assert fake.violations == []
    assert publisher.counts()["connections"] == 1
