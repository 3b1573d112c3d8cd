"""A disk that answers nothing for a while, as worn flash does: a real file system that is frozen under the spool."""

import threading

import pytest

from edge.publish.outbox.bounds import Bounds
from edge.publish.outbox.recovery import SpoolPlace
from tests.support.logged import logged
from tests.support.wait import wait_looks, wait_until
from tests.support.wire_messages import detections, event

pytestmark = pytest.mark.slow(reason="a disk that answers late, by the clock")


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
