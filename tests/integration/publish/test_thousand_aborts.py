"""F-31: connections that break at random points, in every way that we know; the promise is proven from what came."""

import os
import random
import threading

import pytest

from tests.support.promise import findings
from tests.support.tcp_proxy import ChaosProxy
from tests.support.wait import wait_until
from tests.support.wire_messages import detections

pytestmark = pytest.mark.slow_but(
    "test_f31_aborts_at_random_points_lose_nothing_and_keep_the_promise", reason="further brokers, cuts and disks"
)

LONG = bool(os.environ.get("EDGE_LONG_TESTS"))
ABORTS = 1000 if LONG else 40
LIMIT_S = 3600 if LONG else 120
STREAMS = ("east", "west", "north")


class Frames:
    """Publishes to several streams until it is stopped; `last` are the numbers given."""

    def __init__(self, publisher, *, every_s=0.001):
        self.last = dict.fromkeys(STREAMS, 0)
        self._publisher = publisher
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        rng = random.Random(7)
        while not self._stop.wait(self._every_s):
            stream = rng.choice(STREAMS)
            self.last[stream] += 1
            self._publisher.publish(detections(self.last[stream], stream=stream, count=rng.randint(0, 12)))

    def stop(self):
        self._stop.set()
        self._thread.join()

    @property
    def published(self):
        return {(stream, 41): last for stream, last in self.last.items() if last}


def has_said_goodbye(collector):
    """Return whether the device's last word has come: a broker sends one subscriber what it has in its order."""
    last = collector.messages[-20:]
    return any(
        one.topic.endswith("gate-01/state") and b'"offline"' in one.payload and b'"stopped"' in one.payload
        for one in last
    )


@pytest.mark.parametrize("protocol", ["v5", "v3.1.1"])
def test_f31_aborts_at_random_points_lose_nothing_and_keep_the_promise(
    make_broker, make_publisher, make_collector, protocol
):
    broker = make_broker(options=("max_inflight_messages 100",)).start()
    collector = make_collector(broker.port)
    with ChaosProxy(broker.port, seed=31, faults=ABORTS) as proxy:
        publisher = make_publisher(proxy.port, streams=STREAMS, protocol=protocol, live_s=0.5, max_bytes=64 << 20)
        frames = Frames(publisher, every_s=0.004)
        wait_until(lambda: proxy.faults_left <= 0, what="all aborts", timeout_s=LIMIT_S)
        wait_until(lambda: publisher.is_connected, what="a connection that lasts")
        frames.stop()
        assert publisher.flush(LIMIT_S)
        counts = publisher.counts()
        publisher.close()
        wait_until(lambda: has_said_goodbye(collector), what="the last message of all", timeout_s=LIMIT_S)
        most = counts["largest_window"] * counts["connections"]
        found = collector.findings()
        found.prove(frames.published, most_duplicates=most)
        assert counts["numbered"] == counts["numbered_acknowledged"] + counts["numbered_in_gaps"]
        assert counts["numbered_lost"] == 0
        assert found.duplicates <= counts["numbered_sent_again"]
    print(
        f"{protocol}: {counts['connections']} connections, {sum(frames.last.values())} messages, "
        f"{found.duplicates} duplicates, {counts['numbered_in_gaps']} declared"
    )


def test_f34_f35_a_broker_that_refuses_limits_and_dies_at_random_is_sent_or_told_everything(
    make_fake, make_publisher, monkeypatch
):
    monkeypatch.setattr("edge.publish.mqtt.holds._HOLD_MIN_S", 0.005)
    rng = random.Random(35)
    reasons = [0] * 60 + [0x10] * 5 + [0x80, 0x83, 0x87, 0x97, 0x99]

    fake = make_fake(receive_maximum=7, maximum_packet_size=1400)
    fake.behaviour.puback_reason = lambda publish: 0 if "streams" not in publish.topic else rng.choice(reasons)
    publisher = make_publisher(fake.port, streams=STREAMS, live_s=0.5)
    frames = Frames(publisher, every_s=0.003)
    for _ in range(ABORTS // 4):
        before = len(fake.accepted)
        wait_until(lambda: len(fake.accepted) > before + rng.randint(0, 20), what="some")  # noqa: B023
        fake.behaviour.connack_reason = rng.choice([0, 0, 0, 0x88])
        fake.drop()
        connects = len(fake.connects)
        wait_until(lambda: len(fake.connects) > connects, what="it comes back")  # noqa: B023
        fake.behaviour.connack_reason = 0
    frames.stop()
    fake.behaviour.puback_reason = lambda publish: 0
    assert publisher.flush(60)
    publisher.close()
    found = findings((one.topic, one.payload) for one in fake.accepted)
    found.broken = [what for what in found.broken if "first came after" not in what]  # a quota turns the order round
    found.prove(frames.published, most_duplicates=7 * publisher.counts()["connections"])
    assert fake.violations == []
    assert publisher.counts()["numbered_lost"] == 0
