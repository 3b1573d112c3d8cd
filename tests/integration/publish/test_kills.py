"""F-37: the process is killed at random points; what it had accepted is sent by the next one, or declared."""

import os
import random
import struct
import subprocess
import sys

import msgspec
import pytest

from edge.publish.messages import GapMessage
from edge.publish.outbox.ring import RecoveredRing
from tests.support.chaos_proxy import ChaosProxy
from tests.support.ports import free_port
from tests.support.wait import wait_until
from tests.support.wire_messages import birth, detections

pytestmark = pytest.mark.integration

KILLS = 200 if os.environ.get("EDGE_LONG_TESTS") else 12


class Killed:
    """Runs the publishing process again and again over one ring; `published` is what each start had accepted."""

    def __init__(self, directory, *, max_bytes=1 << 20, spool=""):
        self._max_bytes = max_bytes
        self._spool = spool
        self.ring = directory / "ring"
        self.published = {}
        self._numbers = directory / "numbers"
        self._epoch = 40

    def run(self, port, lives_s):
        self._epoch += 1
        self._numbers.write_bytes(bytes(8))
        command = [sys.executable, "-m", "tests.support.publishing_process", str(port), self.ring, str(self._epoch)]
        with subprocess.Popen(
            [*command, self._numbers, str(self._max_bytes), self._spool], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout.readline() == b"ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(lives_s)
            process.kill()
        (last,) = struct.unpack("<Q", self._numbers.read_bytes())
        self.published["east", self._epoch] = last

    def has_arrived(self, collector):
        found = collector.findings()
        return not any(found.undeclared(account, last) for account, last in self.published.items())

    def end(self, make_publisher, port):
        """Start once more and deliver what is left."""
        publisher = make_publisher(port, ring_path=self.ring, max_bytes=self._max_bytes)
        assert publisher.flush(60)
        counts = publisher.counts()
        assert counts["numbered"] == counts["numbered_acknowledged"] + counts["numbered_in_gaps"]
        publisher.close()
        return counts


def prove(collector, killed, most_duplicates):
    """A kill may fall between the acceptance of a number and the note that the test takes of it."""
    found = collector.findings()
    published = dict(killed.published)
    for account, numbers in found.received.items():
        published[account] += max(numbers) == published[account] + 1
    found.prove({account: last for account, last in published.items() if last}, most_duplicates=most_duplicates)


def test_f37_kills_at_random_points_lose_nothing(tmp_path, make_broker, make_publisher, make_collector):
    rng = random.Random(37)
    broker = make_broker().start()
    collector = make_collector(broker.port)
    killed = Killed(tmp_path)
    with ChaosProxy(broker.port, seed=37, faults=1 << 30, most_publishes=200) as proxy:
        for _ in range(KILLS):
            killed.run(rng.choice([broker.port, proxy.port]), rng.uniform(0.05, 0.5))
        connections = proxy.connections + KILLS
    killed.end(make_publisher, broker.port)

    wait_until(lambda: killed.has_arrived(collector), what="all", timeout_s=60)
    prove(collector, killed, most_duplicates=500 * connections)
    assert sum(killed.published.values()) > 50 * KILLS


def test_kills_while_the_broker_is_away_lose_only_what_the_bound_lets_go(
    tmp_path, make_broker, make_publisher, make_collector
):
    killed = Killed(tmp_path, max_bytes=100_000)
    for _ in range(4):
        killed.run(free_port(), 1.0)
    broker = make_broker().start()
    collector = make_collector(broker.port)
    counts = killed.end(make_publisher, broker.port)

    wait_until(lambda: killed.has_arrived(collector), what="all", timeout_s=60)
    prove(collector, killed, most_duplicates=0)
    assert counts["numbered_in_gaps"] > 0, "100 kB is less than these were"
    assert not collector.payloads("/detections"), "what comes from an earlier start is late"
    live = [gap for gap in collector.payloads("/gaps") if gap["reason"] == "spool-bytes"]
    assert live
    assert all(gap["exact"] for gap in live), "nothing of it was ever on its way"


def test_a_clean_end_without_a_broker_keeps_everything_for_the_next_start(
    tmp_path, make_broker, make_publisher, make_collector
):
    ring = tmp_path / "ring"
    first = make_publisher(free_port(), ring_path=ring)
    for seq in range(1, 101):
        first.publish(detections(seq))
    first.close()
    broker = make_broker().start()
    collector = make_collector(broker.port)
    second = make_publisher(broker.port, ring_path=ring)
    assert second.flush(10)

    wait_until(lambda: len(collector.payloads("/replay")) == 100, what="all of them")
    collector.findings().prove({("east", 41): 100}, most_duplicates=0)


def test_f38_a_ring_that_is_damaged_is_set_aside_and_declared(tmp_path, broker, collector, make_publisher, caplog):
    ring = tmp_path / "ring"
    first = make_publisher(free_port(), ring_path=ring)
    for seq in range(1, 101):
        first.publish(detections(seq))
    first.close()
    content = bytearray(ring.read_bytes())
    content[content.rindex(b'"seq":50,')] ^= 1
    ring.write_bytes(content)
    second = make_publisher(broker.port, ring_path=ring)
    assert second.flush(10)

    wait_until(lambda: collector.payloads("/gaps"), what="the gap")
    gaps = collector.payloads("/gaps")
    assert [gap["of"] for gap in gaps] == ["detections", "events"]
    for gap in gaps:
        told = (gap["reason"], gap["stream"], gap["epoch"], gap["to"], gap["exact"])
        assert told == ("spool-corrupt", "east", 41, None, False)
    assert {one["seq"] for one in collector.payloads("/replay")} == set(range(1, 50))
    assert (tmp_path / "ring.damaged").read_bytes() == content
    assert "set aside" in caplog.text


@pytest.mark.parametrize("content", [b"", b"nonsense", bytes(1 << 20)])
def test_f38_what_is_no_ring_at_all_is_set_aside_and_declared(tmp_path, broker, collector, make_publisher, content):
    ring = tmp_path / "ring"
    ring.write_bytes(content)
    publisher = make_publisher(broker.port, ring_path=ring)
    publisher.publish(detections(1))
    assert publisher.flush(10)

    wait_until(lambda: collector.payloads("/gaps"), what="the gap")
    assert {(gap["epoch"], gap["reason"]) for gap in collector.payloads("/gaps")} == {(40, "spool-corrupt")}
    wait_until(lambda: collector.numbers()["east"] == [1], what="the message")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs a folder where nothing can be made")
def test_f38_without_room_messages_are_in_memory_and_that_is_said(broker, collector, make_publisher, caplog):
    publisher = make_publisher(broker.port, ring_path=__import__("pathlib").Path("/proc/self/fd/ring"))
    publisher.publish(detections(1))

    assert publisher.flush(10)
    assert "messages are not kept over a restart" in caplog.text


def test_declared_losses_outlive_the_process_until_they_are_delivered(
    tmp_path, make_broker, make_publisher, make_collector
):
    ring = tmp_path / "ring"
    first = make_publisher(free_port(), ring_path=ring, max_bytes=100_000)
    for seq in range(1, 1001):
        first.publish(detections(seq))
    first.close()
    (noted,) = msgspec.json.decode(RecoveredRing(ring).notes)["gaps"]
    assert msgspec.convert(noted, GapMessage).from_ == 1
    broker = make_broker().start()
    collector = make_collector(broker.port)
    second = make_publisher(broker.port, ring_path=ring, max_bytes=100_000)
    assert second.flush(10)

    wait_until(lambda: not collector.undeclared("east", 1000), what="all came or are declared")
    collector.findings().prove({("east", 41): 1000}, most_duplicates=0)
    second.close()
    assert msgspec.json.decode(RecoveredRing(ring).notes)["gaps"] == []


def test_the_birth_message_is_of_the_new_start(tmp_path, broker, collector, make_publisher):
    ring = tmp_path / "ring"
    make_publisher(free_port(), ring_path=ring).close()
    assert make_publisher(broker.port, ring_path=ring).flush(10)

    wait_until(lambda: collector.payloads("/info"), what="the birth")
    assert collector.payloads("/info")[0]["streams"] == birth().streams
