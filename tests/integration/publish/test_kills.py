"""F-37: the process is killed at random points; what it had accepted is sent by the next one, or declared.

A kill takes what the last transaction of 20 ms had not; the next start says so with an open gap record.

F-31: connections break at random points, in every way that we know; the promise is proven from what came.
"""

import contextlib
import os
import random
import sqlite3
import struct
import subprocess
import sys
import threading

import msgspec
import pytest

from edge.publish.messages import GapMessage
from tests.support.logged import logged
from tests.support.ports import free_port
from tests.support.promise import findings
from tests.support.tcp_proxy import ChaosProxy
from tests.support.wait import wait_until
from tests.support.wire_messages import detections, publish_frames

pytestmark = pytest.mark.slow_but(
    "test_f37_kills_at_random_points_lose_nothing",
    "test_f31_aborts_at_random_points_lose_nothing_and_keep_the_promise",
    reason="further brokers, cuts and disks",
)

KILLS = 200 if os.environ.get("EDGE_LONG_TESTS") else 12


class Killed:
    """Runs the publishing process again and again over one store; `published` is what each start had accepted."""

    def __init__(self, directory, *, max_bytes=1 << 20, spool=""):
        self._max_bytes = max_bytes
        self._spool = spool
        self.path = directory / "outbox.db"
        self.published = {}
        self._numbers = directory / "numbers"
        self._epoch = 40

    def run(self, port, lives_s):
        self._epoch += 1
        self._numbers.write_bytes(bytes(8))
        command = [sys.executable, "-m", "tests.support.publishing_process", str(port), self.path, str(self._epoch)]
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
        found = collector.findings(may_be_open=True)
        return not any(found.undeclared(account, last) for account, last in self.published.items())

    def end(self, connected, port):
        """Start once more and deliver what is left."""
        publisher = connected(port, run_path=self.path, max_bytes=self._max_bytes)
        counts = publisher.counts()
        assert counts["numbered"] == counts["numbered_acknowledged"] + counts["numbered_in_gaps"]
        publisher.close()
        return counts


def prove(collector, killed, most_duplicates):
    """Hold all that came against the promise; return how many numbers the kills took.

    A kill may fall between the acceptance of a number and the note that the test takes of it.
    """
    found = collector.findings(may_be_open=True)
    published = dict(killed.published)
    for account, numbers in found.received.items():
        published[account] += max(numbers) == published[account] + 1
    events = {("east events", epoch): 0 for _, epoch in published}
    found.prove(published | events, most_duplicates=most_duplicates)
    assert {gap["reason"] for gap in collector.payloads("/gaps") if gap["to"] is None} <= {"crash"}
    known = {account: found.received[account].keys() | found.declared[account] for account in published}
    taken = sum(len(set(range(1, last + 1)) - known[account]) for account, last in published.items())
    print(f"{len(published)} kills took {taken} of {sum(published.values())} messages")
    return taken


def test_f37_kills_at_random_points_lose_nothing(tmp_path, make_broker, connected, make_collector):
    rng = random.Random(37)
    broker = make_broker().start()
    collector = make_collector(broker.port)
    killed = Killed(tmp_path)
    with ChaosProxy(broker.port, seed=37, faults=1 << 30, most_publishes=200) as proxy:
        for _ in range(KILLS):
            killed.run(rng.choice([broker.port, proxy.port]), rng.uniform(0.05, 0.5))
        connections = proxy.connections + KILLS
    killed.end(connected, broker.port)

    wait_until(lambda: killed.has_arrived(collector), what="all")
    taken = prove(collector, killed, most_duplicates=500 * connections)
    assert sum(killed.published.values()) > KILLS
    assert taken < sum(killed.published.values()) / 4


def test_kills_while_the_broker_is_away_lose_only_what_the_bound_lets_go(
    tmp_path, make_broker, connected, make_collector
):
    killed = Killed(tmp_path, max_bytes=100_000)
    for _ in range(4):
        killed.run(free_port(), 1.0)
    broker = make_broker().start()
    collector = make_collector(broker.port)
    counts = killed.end(connected, broker.port)

    wait_until(lambda: killed.has_arrived(collector), what="all")
    prove(collector, killed, most_duplicates=0)
    assert counts["numbered_in_gaps"] > 0, "100 kB is less than these were"
    assert not collector.payloads("/detections"), "what comes from an earlier start is late"
    live = [gap for gap in collector.payloads("/gaps") if gap["reason"] == "spool-bytes"]
    assert any(gap["exact"] for gap in live), "a start knows what of its own was never on its way"


@pytest.mark.parametrize("content", [None, b"nonsense", bytes(1 << 20)])
def test_f38_a_file_in_run_that_is_damaged_is_set_aside_and_declared(
    tmp_path, broker, collector, make_publisher, caplog, content
):
    path = tmp_path / "outbox.db"
    first = make_publisher(free_port(), run_path=path)
    publish_frames(first, range(1, 101))
    first.close()
    damaged = bytearray(path.read_bytes())
    damaged[damaged.rindex(b'"seq":50,')] ^= 1
    path.write_bytes(damaged if content is None else content)
    second = make_publisher(broker.port, run_path=path, epoch=42)
    second.publish(msgspec.structs.replace(detections(1), epoch=42))
    assert second.flush(60)

    wait_until(lambda: collector.payloads("/gaps"), what="the gap")
    told = {
        (gap["reason"], gap["of"], gap["stream"], gap["epoch"], gap["from"], gap["to"], gap["exact"])
        for gap in collector.payloads("/gaps")
    }
    told = {one for one in told if one[3] == 41}
    assert told == {("spool-corrupt", of, "east", 41, 1, None, False) for of in ("detections", "events")}
    assert [one["epoch"] for one in collector.payloads(("/detections", "/replay"))] == [42]
    assert path.with_name("outbox.db.damaged").stat().st_size > 0
    assert "spool-damaged" in logged(caplog)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs a folder where nothing can be made")
def test_f38_without_room_messages_are_in_memory_and_that_is_said(broker, collector, make_publisher, caplog):
    publisher = make_publisher(broker.port, run_path=__import__("pathlib").Path("/proc/self/fd/outbox.db"))
    publisher.publish(detections(1))

    assert publisher.flush(60)
    assert "messages-not-kept" in logged(caplog)


def gaps_in(path):
    with contextlib.closing(sqlite3.connect(path)) as store:
        return [
            msgspec.json.decode(payload, type=GapMessage) for (payload,) in store.execute("SELECT payload FROM gap")
        ]


def test_declared_losses_outlive_the_process_until_they_are_delivered(
    tmp_path, make_broker, make_publisher, connected, make_collector
):
    path = tmp_path / "outbox.db"
    first = make_publisher(free_port(), run_path=path, max_bytes=100_000)
    publish_frames(first, range(1, 1001))
    first.close()
    declared = gaps_in(path)
    assert min(gap.from_ for gap in declared) == 1
    broker = make_broker().start()
    collector = make_collector(broker.port)
    second = connected(broker.port, run_path=path, max_bytes=100_000)

    wait_until(lambda: not collector.undeclared("east", 1000), what="all came or are declared")
    collector.findings().prove({("east", 41): 1000}, most_duplicates=0)
    second.close()
    assert gaps_in(path) == []


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
