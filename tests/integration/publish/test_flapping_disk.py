"""A real disk that fills, empties, freezes and thaws in quick turns while messages wait: nothing is lost unsaid."""

import random
import time
from pathlib import Path

import pytest

from edge.publish.outbox.bounds import Bounds
from edge.publish.outbox.recovery import SpoolPlace
from tests.support.promise import findings
from tests.support.wait import wait_until
from tests.support.wire_messages import detections, event

pytestmark = pytest.mark.slow(reason="a disk that comes and goes by the clock")
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
