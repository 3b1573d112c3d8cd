"""A stop delivers what can be delivered, also when it comes while the publisher waits before its next attempt."""

import pytest

from edge.publish.mqtt.trouble import BrokerBackoff
from tests.support.ports import free_port
from tests.support.wait import QuietWatch, next_try_s, wait_until
from tests.support.wire_messages import detections, publish_frames

pytestmark = pytest.mark.slow_but(
    "test_a_stop_during_the_wait_for_the_next_attempt_makes_one_more", reason="further brokers, cuts and disks"
)


def patient():
    return BrokerBackoff(min_s=600, max_s=600)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_stop_during_the_wait_for_the_next_attempt_makes_one_more(away, make_publisher, is_flushed):
    broker, collector = away
    publisher = make_publisher(broker.port, backoff=patient(), close_timeout_s=60)
    publish_frames(publisher, range(1, 1001))
    wait_until(lambda: next_try_s(publisher), what="a failed attempt")
    broker.start()
    if is_flushed:
        assert publisher.flush(60)
    publisher.close()

    wait_until(lambda: not collector.undeclared("east", 1000), what="all numbers")
    assert [state["state"] for state in collector.payloads("gate-01/state")][-1] == "offline"
    assert publisher.counts()["waiting"] == 0


def test_a_stop_without_a_broker_ends_after_one_more_attempt(make_publisher):
    publisher = make_publisher(free_port(), backoff=patient(), close_timeout_s=60)
    publisher.publish(detections(1))
    wait_until(lambda: next_try_s(publisher), what="a failed attempt")
    watch = QuietWatch()
    publisher.close()

    assert watch.seconds() < 8
    assert publisher.counts()["waiting"] == 3  # birth, frame, and the state that says goodbye


def test_a_stop_after_a_refused_password_does_not_try_it_again(make_fake, make_publisher):
    fake = make_fake(connack_reason=0x86)
    publisher = make_publisher(fake.port)
    wait_until(lambda: next_try_s(publisher), what="the refusal")
    publisher.close()

    assert len(fake.connects) == 1


def test_a_stop_after_a_loss_comes_back_for_what_was_left(make_broker, connected, make_collector):
    broker = make_broker(is_persistent=True).start()
    collector = make_collector(broker.port)
    publisher = connected(broker.port, backoff=patient(), close_timeout_s=60)
    broker.stop()
    wait_until(lambda: next_try_s(publisher), what="the loss")
    publish_frames(publisher, range(1, 101))
    broker.start()
    publisher.close()

    wait_until(lambda: not collector.undeclared("east", 100), what="all numbers")
    assert publisher.counts()["numbered_waiting"] == 0
