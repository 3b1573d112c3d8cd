"""A broker's return is noticed within five seconds, whatever the outage was: real ones that die, restart and hang.

A stop delivers what can be delivered, also when it comes while the publisher waits before its next attempt.
"""

import pytest

from edge.deadline import Deadline
from edge.publish.messages import DetectionsMessage
from edge.publish.mqtt.subscriber import Subscriber
from edge.publish.mqtt.trouble import BrokerBackoff
from tests.support.mosquitto import config
from tests.support.ports import free_port
from tests.support.wait import QuietWatch, next_try_s, wait_connected, wait_looks, wait_until
from tests.support.wire_messages import detections, publish_frames

pytestmark = pytest.mark.slow_but(
    "test_one_that_was_away_from_the_start",
    "test_a_stop_during_the_wait_for_the_next_attempt_makes_one_more",
    reason="further brokers, cuts and disks",
)
MOST_S = 5.0


def await_return(publisher):
    wait_looks(lambda: publisher.is_connected, what="a connection", seconds=MOST_S)


def test_one_that_was_away_from_the_start(make_broker, make_publisher):
    broker = make_broker()
    publisher = make_publisher(broker.port, backoff=BrokerBackoff())
    wait_until(lambda: next_try_s(publisher), what="a failed attempt")
    broker.start()

    await_return(publisher)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_one_that_was_lost(make_broker, make_publisher, make_collector, how):
    broker = make_broker().start()
    publisher = make_publisher(broker.port, backoff=BrokerBackoff())
    wait_connected(publisher)
    getattr(broker, how)()
    wait_until(lambda: next_try_s(publisher), what="the loss")
    broker.start()

    await_return(publisher)
    collector = make_collector(broker.port)
    publisher.publish(detections(1))
    wait_until(lambda: collector.numbers()["east"] == [1], what="the message")


def test_one_that_comes_back_within_a_long_wait_is_not_left_waiting(make_broker, make_publisher):
    broker = make_broker().start()
    publisher = make_publisher(broker.port, backoff=BrokerBackoff(min_s=300, max_s=300))
    wait_connected(publisher)
    broker.kill()
    wait_until(lambda: (next_try_s(publisher) or 0) > 100, what="the loss")
    gone = Deadline.after(3.0)
    wait_until(lambda: gone.is_over, what="a look at a broker that is not there")
    broker.start()

    await_return(publisher)


def test_one_that_hangs_and_goes_on(make_broker, make_publisher):
    broker = make_broker().start()
    publisher = make_publisher(broker.port, backoff=BrokerBackoff(), ack_timeout_s=1.0)
    wait_connected(publisher)
    broker.freeze()
    publisher.publish(detections(1))
    wait_until(lambda: "does not answer a CONNECT" in publisher.status, what="an attempt while it hangs")
    broker.thaw()

    await_return(publisher)
    assert publisher.flush(60)


def test_a_subscriber_notices_it_too_and_goes_on(make_broker, make_publisher):
    broker = make_broker().start()
    subscriber = Subscriber(config(broker.port))
    told = []
    subscriber.open()
    arrivals = subscriber.receive(on_status=told.append)
    broker.kill()
    while not told:
        next(arrivals)
    assert "not connected" in told[0]
    broker.start()
    watch = QuietWatch()
    wait_until(lambda: next(arrivals) is None and told[-1].startswith("connected"), what="a connection")
    quiet_s = watch.seconds()
    make_publisher(broker.port).publish(detections(1))
    found = next(one for one in arrivals if one is not None and isinstance(one.message, DetectionsMessage))
    subscriber.close()

    assert quiet_s < MOST_S
    assert found.message.seq == 1


def test_a_broker_that_stays_away_is_an_alarm_until_it_is_back(make_broker, make_publisher, monkeypatch):
    monkeypatch.setattr("edge.publish.mqtt.publisher.NO_BROKER_S", 0.3)
    broker = make_broker()
    publisher = make_publisher(broker.port)
    assert publisher.alarm is None
    wait_until(lambda: publisher.alarm is not None, what="the alarm of a broker that was never there")
    assert f":{broker.port}" in publisher.alarm
    broker.start()
    wait_until(lambda: publisher.alarm is None, what="the end of the alarm")
    broker.kill()
    wait_until(lambda: publisher.alarm is not None, what="the alarm of a broker that was lost")


def test_a_broker_that_is_restarted_is_no_alarm(make_broker, make_publisher):
    broker = make_broker().start()
    publisher = make_publisher(broker.port)
    wait_connected(publisher)
    broker.kill()
    wait_until(lambda: not publisher.is_connected, what="the loss")

    assert publisher.alarm is None


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
