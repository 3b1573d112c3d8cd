"""A broker's return is noticed within five seconds, whatever the outage was: real ones that die, restart and hang."""

import time

import pytest

from edge.config.schema import MqttConfig
from edge.publish.mqtt.probe import accepts
from edge.publish.mqtt.subscriber import Subscriber
from edge.publish.mqtt.trouble import BrokerBackoff
from tests.support.wait import wait_until
from tests.support.wire_messages import detections

pytestmark = pytest.mark.integration
MOST_S = 5.0


def after_hours():
    """By itself, no attempt would come within the test."""
    return BrokerBackoff(min_s=300, max_s=300)


def seconds_until_connected(publisher):
    began_s = time.monotonic()
    wait_until(lambda: publisher.is_connected, what="a connection", timeout_s=30)
    return time.monotonic() - began_s


def test_one_that_was_away_from_the_start(make_broker, make_publisher):
    broker = make_broker()
    publisher = make_publisher(broker.port, backoff=after_hours())
    wait_until(lambda: "next try in" in publisher.status, what="a failed attempt")
    broker.start()

    assert seconds_until_connected(publisher) < MOST_S


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_one_that_was_lost(make_broker, make_publisher, make_collector, how):
    broker = make_broker().start()
    publisher = make_publisher(broker.port, backoff=after_hours())
    seconds_until_connected(publisher)
    getattr(broker, how)()
    wait_until(lambda: "next try in" in publisher.status, what="the loss")
    broker.start()

    assert seconds_until_connected(publisher) < MOST_S
    collector = make_collector(broker.port)
    publisher.publish(detections(1))
    wait_until(lambda: collector.numbers()["east"] == [1], what="the message")


def test_one_that_hangs_and_goes_on(make_broker, make_publisher):
    broker = make_broker().start()
    publisher = make_publisher(broker.port, backoff=after_hours(), ack_timeout_s=1.0)
    seconds_until_connected(publisher)
    broker.freeze()
    publisher.publish(detections(1))
    wait_until(lambda: "does not answer a CONNECT" in publisher.status, what="an attempt while it hangs", timeout_s=30)
    broker.thaw()

    assert seconds_until_connected(publisher) < MOST_S
    assert publisher.flush(10)


def test_a_subscriber_notices_it_too(make_broker):
    broker = make_broker().start()
    config = MqttConfig(host="127.0.0.1", port=broker.port, site="north", tls=False)
    subscriber = Subscriber(config, backoff=after_hours())
    told = []
    subscriber.open()
    arrivals = subscriber.receive(on_status=told.append)
    broker.kill()
    while not told:
        next(arrivals)
    broker.start()
    began_s = time.monotonic()
    while not told[-1].startswith("connected") and time.monotonic() - began_s < 30:
        next(arrivals)
    subscriber.close()

    assert told[-1].startswith("connected")
    assert time.monotonic() - began_s < MOST_S


def test_what_a_look_sees(make_broker, make_publisher):
    broker = make_broker().start()
    endpoint = make_publisher(broker.port)._endpoint
    assert accepts(endpoint)
    broker.kill()
    assert not accepts(endpoint)
