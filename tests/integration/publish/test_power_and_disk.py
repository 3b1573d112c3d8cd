"""Long outages, full disks and power cuts with a real broker: what the spool keeps and what it declares."""

import os
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from edge.publish.outbox.bounds import Bounds
from edge.publish.outbox.recovery import SpoolPlace
from tests.support.logged import logged
from tests.support.ports import free_port
from tests.support.promise import findings
from tests.support.spooling_process import is_on_disk, is_stored
from tests.support.wait import wait_looks, wait_until
from tests.support.wire_messages import detections, event

pytestmark = pytest.mark.slow_but(
    "test_f37_a_power_cut_in_an_outage_loses_no_event_and_declares_the_frames",
    reason="further brokers, cuts and disks",
)

ROOMY = Bounds(max_bytes=64 << 20, max_age_s=3600.0, free_bytes=0)


@pytest.fixture
def device(tmp_path, make_publisher):
    """Start publishers one after the other over one disk and one /run."""

    class Device:
        run, disk = tmp_path / "run", tmp_path / "disk"
        bounds = ROOMY
        max_bytes = 200_000

        def start(self, port, **options):
            self.run.mkdir(exist_ok=True)
            self.disk.mkdir(exist_ok=True)
            place = options.pop("spool", None) or SpoolPlace(self.disk / "spool.db", self.bounds)
            return make_publisher(
                port, run_path=self.run / "outbox.db", spool=place, max_bytes=self.max_bytes, **options
            )

    return Device()


def has_room(publisher):
    counts = publisher.counts()
    return counts["waiting_bytes"] < 150_000 or not counts["spool_works"]


def publish(publisher, first, last):
    """Publish as fast as the store takes it, twenty at a time."""
    for seq in range(first, last + 1):
        publisher.publish(detections(seq))
        if seq % 20 == 0:
            wait_until(lambda: is_stored(publisher._keeper), what="the store has what came")


def test_f30_a_long_outage_with_a_small_memory_loses_nothing_and_live_stays_fresh(device, away):
    broker, collector = away
    publisher = device.start(broker.port)
    publish(publisher, 1, 5000)
    assert publisher.counts()["spool_waiting"] > 4000
    broker.start()
    wait_until(lambda: collector.payloads("/replay"), what="the replay begins")
    publish(publisher, 5001, 5100)
    assert publisher.flush(60)

    wait_until(lambda: not collector.undeclared("east", 5100), what="all")
    collector.findings().prove({("east", 41): 5100}, most_duplicates=0)
    live = [one["seq"] for one in collector.payloads("/detections")]
    assert live, "what is new does not wait behind the replay"
    wait_until(lambda: publisher.counts()["spool_oldest_s"] == 0, what="the disk is empty again")


def test_f37_a_power_cut_in_an_outage_loses_no_event_and_declares_the_frames(device, make_broker, make_collector):
    first = device.start(free_port())
    publish(first, 1, 1000)
    for seq in range(1, 6):
        first.publish(event(seq))
    wait_until(lambda: first.counts()["spool_waiting"] > 0, what="memory is relieved")
    wait_until(lambda: is_on_disk(first._keeper), what="all is on the disk, and nothing on its way")
    copied = device.disk.with_name("copied")
    shutil.copytree(device.disk, copied)  # what the disk holds when the power goes
    first.close()
    shutil.rmtree(device.run)
    shutil.rmtree(device.disk)
    copied.rename(device.disk)
    broker = make_broker().start()
    collector = make_collector(broker.port)
    second = device.start(broker.port)
    assert second.flush(60)

    wait_until(lambda: len(collector.payloads("/replay")) >= 1000, what="the frames")
    wait_until(lambda: len(collector.payloads("/events")) >= 5, what="the events")
    wait_until(lambda: len(collector.payloads("/gaps")) >= 2, what="the declaration")
    told = {(gap["of"], gap["from"], gap["to"], gap["reason"]) for gap in collector.payloads("/gaps")}
    assert told == {("detections", 1001, None, "power-loss"), ("events", 6, None, "power-loss")}
    assert [one["seq"] for one in collector.payloads("/events")] == [1, 2, 3, 4, 5]


def test_kills_with_a_spool_lose_nothing(device, make_broker, make_collector, tmp_path):
    from tests.integration.publish.test_kills import Killed, prove

    killed = Killed(tmp_path, max_bytes=400_000, spool=tmp_path / "spool.db")
    for _ in range(4):
        killed.run(free_port(), 1.0)
    broker = make_broker().start()
    collector = make_collector(broker.port)
    device.run = tmp_path
    device.disk = tmp_path
    last = ("east", max(epoch for _, epoch in killed.published) + 1)
    killed.published[last] = 0
    publisher = device.start(broker.port, epoch=last[1])
    assert publisher.flush(60)

    wait_until(lambda: killed.has_arrived(collector), what="all")
    prove(collector, killed, most_duplicates=0)


@pytest.fixture
def little_disk(tmp_path):
    """Mount a disk of three MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    folder = tmp_path / "little"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_f38_a_disk_that_is_full_is_said_and_publishing_goes_on(device, little_disk, away, caplog):
    device.disk = little_disk
    broker, collector = away
    publisher = device.start(broker.port)
    for seq in range(1, 12_001):
        publisher.publish(detections(seq))
        if seq % 100 == 0:
            wait_until(lambda: has_room(publisher), what="room in memory, or a full disk")
    wait_until(
        lambda: publisher.counts()["spool_works"] == 0 or "declared_spool-disk" in publisher.counts(), what="full"
    )
    broker.start()
    publisher.publish(detections(12_001))
    assert publisher.flush(60)

    wait_until(lambda: not collector.undeclared("east", 12_001), what="all came or are declared")
    collector.findings().prove({("east", 41): 12_001}, most_duplicates=0)


def test_two_services_do_not_share_a_spool_and_the_second_has_it_when_the_first_has_ended(
    device, tmp_path, make_publisher, broker, collector, caplog
):
    first = device.start(broker.port)
    second = make_publisher(broker.port, client_id="other", spool=SpoolPlace(device.disk / "spool.db", ROOMY))
    second.publish(detections(1))

    assert second.flush(60)
    assert "messages-in-memory-only" in logged(caplog)
    assert (first.counts()["spool_works"], second.counts()["spool_works"]) == (1, 0)
    first.close()
    wait_until(lambda: second.counts()["spool_works"] == 1, what="the second has it")


@pytest.fixture
def publisher(disk, tmp_path, broker, make_publisher):
    place = SpoolPlace(disk.folder / "spool.db", Bounds(max_bytes=16 << 20, max_age_s=3600.0, free_bytes=0))
    made = make_publisher(broker.port, run_path=tmp_path / "outbox.db", spool=place, max_bytes=200_000)
    yield made
    disk.thaw()


def seqs(collector, kind):
    return [one["seq"] for one in collector.payloads(f"/{kind}")]


def test_f38_a_disk_that_answers_nothing_holds_no_event_back_and_is_said(publisher, disk, collector, caplog):
    publisher.publish(event(1))
    wait_until(lambda: seqs(collector, "events") == [1], what="the first event")
    disk.freeze()

    publisher.publish(event(2))
    publisher.publish(detections(1))
    wait_until(lambda: seqs(collector, "events") == [1, 2], what="the event of a frozen disk")
    wait_until(lambda: seqs(collector, "detections") == [1], what="the frame of a frozen disk")
    assert "messages-in-memory-only" in logged(caplog)
    assert publisher.counts()["spool_works"] == 0
    publisher.publish(event(3))
    wait_looks(lambda: seqs(collector, "events") == [1, 2, 3], what="later events wait no more", seconds=1.5)

    disk.thaw()
    wait_until(lambda: publisher.counts()["spool_works"] == 1, what="the disk works again")
    publisher.publish(event(4))
    wait_until(lambda: seqs(collector, "events") == [1, 2, 3, 4], what="an event that was written first")
    wait_until(lambda: publisher.counts()["spool_waiting"] == 0, what="nothing is left on the disk")


def test_a_stop_does_not_wait_for_a_disk_that_answers_nothing(publisher, disk, collector, caplog):
    publisher.publish(event(1))
    wait_until(lambda: seqs(collector, "events") == [1], what="the first event")
    disk.freeze()
    publisher.publish(event(2))

    stop = threading.Thread(target=publisher.close, daemon=True)
    stop.start()
    stop.join(60)
    is_closed = not stop.is_alive()
    said = collector.payloads("gate-01/state")[-1]["state"]
    disk.thaw()

    assert is_closed
    assert said == "offline"
    assert "the disk has not answered" in caplog.text


FLAPPING_S = 20.0


def held_s():
    """The time of this thread that it has not spent waiting for a CPU, which others of the machine may have."""
    _ran_ns, waited_ns, _slices = map(int, Path("/proc/thread-self/schedstat").read_text().split())
    return time.monotonic() - waited_ns / 1e9


def flap(disk, publisher, published):
    """Let the disk fail and work in turns; a publish that took long is one that waited for it."""
    chance, until_s, longest_s = random.Random(12), time.monotonic() + FLAPPING_S, 0.0
    while time.monotonic() < until_s:
        breaks, mends = chance.choice([(disk.freeze, disk.thaw), (disk.fill, disk.unfill)])
        breaks()
        for _ in range(chance.randrange(20, 120)):
            begun_s = held_s()
            for kind, make in (("detections", detections), ("events", event)):
                published[kind] += 1
                publisher.publish(make(published[kind]))
            longest_s = max(longest_s, held_s() - begun_s)
            time.sleep(0.01)
        mends()
    return longest_s


def test_f38_a_disk_that_flaps_holds_up_no_publish_and_nothing_is_lost_unsaid(
    disk, tmp_path, away, make_publisher, caplog
):
    broker, collector = away
    place = SpoolPlace(disk.folder / "spool.db", Bounds(max_bytes=16 << 20, max_age_s=3600.0, free_bytes=0))
    publisher = make_publisher(broker.port, run_path=tmp_path / "outbox.db", spool=place, max_bytes=1_000_000)
    published, began_s = {"detections": 0, "events": 0}, time.monotonic()
    try:
        longest_s = flap(disk, publisher, published)
    finally:
        disk.thaw()
        disk.unfill()
    broker.start()
    assert publisher.flush(60)

    accounts = {("east", 41): published["detections"], ("east events", 41): published["events"]}

    def read():
        return findings([(one.topic, one.payload) for one in list(collector.messages)], has_events=True)

    wait_until(lambda: not any(read().undeclared(*one) for one in accounts.items()), what="all came or is declared")
    read().prove(accounts, most_duplicates=0)
    assert longest_s < 1.0, "no publish waits for the disk"
    wait_until(lambda: publisher.counts()["spool_works"] == 1, what="the disk works again")
    said = [record for record in caplog.records if record.name.endswith("outbox.bounds")]
    assert 1 <= len(said) <= 2 + (time.monotonic() - began_s) / 10, "told no more often than each ten seconds"
