"""Brokers that are away, come back, freeze, and connections that break anywhere."""

import random
import threading
import tracemalloc

import pytest

from edge.publish.messages import StreamStateMessage
from edge.publish.mqtt.window import SMALLEST
from tests.support.logged import logged
from tests.support.ports import free_port
from tests.support.tcp_proxy import AbortingProxy, SilencingProxy
from tests.support.wait import wait_until
from tests.support.wire_messages import detections, publish_frames

pytestmark = pytest.mark.slow_but(reason="further brokers, cuts and disks: the first row of each test is quick")


def firsts(numbers):
    return list(dict.fromkeys(numbers))


def test_what_was_never_delivered_is_waiting_at_the_end_not_dropped(make_publisher, caplog):
    publisher = make_publisher(free_port())
    publish_frames(publisher, range(1, 31))
    for state in ("connecting", "up"):
        publisher.publish(StreamStateMessage(device="gate-01", stream="east", state=state, since=None))
    publisher.close()

    counts = publisher.by_output()["mqtt"]
    # 30 frames, the birth, the state of the device and of its stream, of which only the newest wording counts
    assert (counts["accepted"], counts["waiting"], counts["delivered"], counts["dropped"]) == (33, 33, 0, 0)
    assert (counts["numbered_waiting"], counts["numbered_lost"]) == (30, 0)
    assert "messages-not-delivered count=33" in logged(caplog)
    assert not publisher.flush(10)


@pytest.mark.parametrize("seed", range(8))
def test_f31_aborts_anywhere_lose_nothing_and_repeat_little(broker, collector, make_publisher, seed):
    rng = random.Random(seed)
    aborts = [1, 2, 3, *(rng.randint(1, 120) for _ in range(7))]
    rng.shuffle(aborts)
    with AbortingProxy(broker.port, aborts) as proxy:
        # On a slow machine the rest would go to the other topic; order is promised on each of them.
        publisher = make_publisher(proxy.port, live_s=60)
        publish_frames(publisher, range(1, 501))
        assert publisher.flush(60)
        wait_until(lambda: not collector.undeclared("east", 500), what="all numbers")
        numbers = collector.numbers()["east"]

        assert firsts(numbers) == list(range(1, 501))
        most = publisher.counts()["largest_window"] * len(aborts)
        collector.findings().prove({("east", 41): 500}, most_duplicates=most)
        assert not collector.declared()["east"]
        assert publisher.counts()["dropped"] == 0


def test_a_short_abort_does_not_make_the_device_look_offline(broker, collector, connected):
    with AbortingProxy(broker.port) as proxy:
        publisher = connected(proxy.port)
        proxy.cut()
        publisher.publish(detections(1))
        assert publisher.flush(60)
        wait_until(lambda: collector.numbers()["east"], what="a message after the abort")

    states = collector.payloads("gate-01/state")
    assert [state["state"] for state in states] == ["online", "online"]
    assert states[0]["session"] < states[1]["session"]


def test_the_latest_states_are_sent_again_after_a_reconnect_and_carry_its_session(
    make_broker, make_publisher, make_collector
):
    broker = make_broker().start()  # keeps nothing over a restart, retained messages included
    publisher = make_publisher(broker.port)
    for state in ("connecting", "up"):
        publisher.publish(StreamStateMessage(device="gate-01", stream="east", state=state, since=None))
    assert publisher.flush(60)
    broker.restart()
    wait_until(lambda: publisher.counts()["connections"] == 2, what="the reconnect")
    assert publisher.flush(60)
    wait_until(lambda: publisher.counts()["resent"] >= 1, what="the birth is sent again")
    assert publisher.flush(60)
    collector = make_collector(broker.port)

    wait_until(lambda: len(collector.messages) == 3, what="all retained messages")
    assert [state["state"] for state in collector.payloads("streams/east/state")] == ["up"]
    ((epoch, session),) = {(state["epoch"], state["session"]) for state in collector.payloads("/state")}
    assert (epoch, session > 41_000_001) == (41, True)
    assert all(message.retain for message in collector.messages)


def test_f32_a_frozen_broker_is_noticed(make_broker, connected):
    broker = make_broker().start()
    publisher = connected(broker.port, keepalive_s=1, ack_timeout_s=600)
    broker.freeze()
    publisher.publish(detections(1))

    wait_until(lambda: not publisher.is_connected, what="the keep alive")
    broker.thaw()
    assert publisher.flush(60)


def test_f32_a_broker_that_stops_acknowledging_is_noticed(make_fake, connected, caplog):
    fake = make_fake()
    publisher = connected(fake.port, ack_timeout_s=0.3)
    is_noticed = threading.Event()
    fake.behaviour.puback_reason = lambda publish: is_noticed.wait(60) and 0
    publisher.publish(detections(1))

    wait_until(lambda: "nothing acknowledged" in caplog.text, what="the silence")
    is_noticed.set()


@pytest.mark.slow(reason="an outage by the clock")
def test_f30_a_long_outage_is_bounded_and_declared(make_broker, make_publisher, make_collector):
    broker = make_broker()
    publisher = make_publisher(broker.port, max_bytes=1 << 20)
    tracemalloc.start()
    publish_frames(publisher, range(1, 10_001), count=20)
    ours = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(True, f"*/{one}/*") for one in ("edge", "tests")]
    )  # not of other tests' threads
    tracemalloc.stop()
    counts = publisher.counts()
    assert counts["waiting_bytes"] <= 1 << 20
    assert sum(one.size for one in ours.traces) < 2 << 20
    assert counts["accepted"] == counts["delivered"] + counts["waiting"] + counts["dropped"]

    broker.start()
    collector = make_collector(broker.port)
    publisher.publish(detections(10_001))
    assert publisher.flush(60)
    counts = publisher.counts()
    assert counts["numbered"] == counts["numbered_acknowledged"] + counts["numbered_in_gaps"] == 10_001
    wait_until(lambda: 10_001 in collector.numbers()["east"], what="the newest number")


def test_a_gap_record_that_is_exact_names_no_message_that_came(make_broker, connected, make_collector):
    broker = make_broker().start()
    collector = make_collector(broker.port)
    with SilencingProxy(broker.port) as proxy:
        publisher = connected(proxy.port, max_bytes=20_000)
        proxy.silence()  # the broker takes what comes; its acknowledgements are lost
        publish_frames(publisher, range(1, 11))
        wait_until(lambda: len(collector.numbers()["east"]) == 10, what="the broker has them")
        proxy.refuse = True
        proxy.cut()
        wait_until(lambda: publisher.counts()["in_flight"] == 0, what="the loss is noticed")
        publish_frames(publisher, range(11, 501))
        proxy.refuse = False
        assert publisher.flush(60)
        wait_until(lambda: not collector.undeclared("east", 500), what="all came or are declared")

    gaps = collector.payloads("/gaps")
    assert [gap["exact"] for gap in gaps] == [False, True], "what may have come is told apart from what has not"
    assert (gaps[0]["from"], gaps[1]["from"]) == (1, 11)
    collector.findings().prove({("east", 41): 500}, most_duplicates=10)


def test_losses_of_an_outage_are_one_gap_record(make_broker, connected, make_collector):
    broker = make_broker().start()
    collector = make_collector(broker.port)
    with AbortingProxy(broker.port) as proxy:
        publisher = connected(proxy.port, max_bytes=100_000)
        broker.freeze()
        publish_frames(publisher, range(1, 21))
        wait_until(lambda: publisher.counts()["in_flight"] >= SMALLEST, what="a window is full")
        publish_frames(publisher, range(21, 1001))
        broker.thaw()
        assert publisher.flush(60)
        wait_until(lambda: not collector.undeclared("east", 1000), what="all came or are declared")

    (gap,) = collector.payloads("/gaps")
    assert gap["reason"] == "spool-bytes"
    assert gap["exact"]
    assert gap["count"] == gap["to"] - gap["from"] + 1 == publisher.counts()["numbered_in_gaps"]
