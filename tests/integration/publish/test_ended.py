"""A stream's `ended` comes behind its last detections, whatever lay between them and the broker."""

import json
import shutil

import msgspec
import pytest

from edge.publish.messages import StreamStateMessage
from edge.publish.outbox.bounds import Bounds
from edge.publish.outbox.recovery import SpoolPlace
from tests.support.ports import free_port
from tests.support.spooling_process import is_on_disk, is_stored
from tests.support.tcp_proxy import AbortingProxy, DelayingProxy
from tests.support.wait import wait_until
from tests.support.wire_messages import detections, event, publish_frames

pytestmark = pytest.mark.slow_but("test_ended_comes_behind_what_still_waits", reason="further brokers, cuts and disks")

BOUNDS = Bounds(max_bytes=64 << 20, max_age_s=3600.0, free_bytes=0)
NUMBERED = ("detections", "replay", "events", "gaps")


def state(name, *, stream="east"):
    return StreamStateMessage(device="gate-01", stream=stream, state=name, since="2026-11-20T10:15:03.000000Z")


def publish(publisher, first, last, *, stream="east"):
    publish_frames(publisher, range(first, last + 1), stream=stream)


def told(collector, *, stream="east"):
    """What was said of one stream, in its order: the words of its state, and `number` for each numbered message."""
    words = []
    for message in list(collector.messages):
        content = json.loads(message.payload) if message.payload else {}
        if content.get("stream") != stream:
            continue
        kind = message.topic.rsplit("/", 1)[1]
        if kind == "state":
            words.append(content["state"])
        elif kind in NUMBERED:
            words.append("number")
    return words


def assert_ended_is_last(collector, *, stream="east"):
    wait_until(lambda: "ended" in told(collector, stream=stream), what="the end is told")
    words = told(collector, stream=stream)
    behind = words[words.index("ended") :]
    assert "number" not in behind, f"{behind.count('number')} of {words.count('number')} came behind `ended`"


def test_ended_comes_behind_what_still_waits(collector, broker, make_publisher):
    publisher = make_publisher(broker.port, streams=("east", "west"))
    wait_until(lambda: publisher.is_connected, what="the connection")
    publisher.publish(state("up"))
    publish(publisher, 1, 400)
    publisher.publish(event(1))
    publisher.publish(state("ended"))
    publish(publisher, 1, 200, stream="west")
    assert publisher.flush(60)

    wait_until(lambda: not collector.undeclared("east", 400), what="all of east")
    assert_ended_is_last(collector)
    assert publisher.counts()["waiting"] == 0


def test_ended_waits_for_the_acknowledgement_of_the_last_one_and_not_for_other_streams(
    collector, broker, make_publisher
):
    with DelayingProxy(broker.port, round_trip_s=0.2) as proxy:
        publisher = make_publisher(proxy.port, streams=("east", "west"))
        wait_until(lambda: publisher.is_connected, what="the connection")
        publish(publisher, 1, 5)
        publisher.publish(state("ended"))
        publish(publisher, 1, 400, stream="west")
        assert publisher.flush(60)
        wait_until(lambda: len(told(collector, stream="west")) >= 400, what="all of west")

    assert_ended_is_last(collector)
    topics = [message.topic.split("/")[-2:] for message in collector.messages]
    assert topics.index(["east", "state"]) < topics[::-1].index(["west", "detections"]) + len(topics), "no stream waits"


def test_ended_comes_behind_what_an_outage_has_kept(away, make_publisher):
    broker, collector = away
    publisher = make_publisher(broker.port, live_s=0.05)
    publish(publisher, 1, 500)
    publisher.publish(state("ended"))
    wait_until(lambda: "nothing listens" in publisher.status, what="a failed attempt")
    broker.start()
    assert publisher.flush(60)

    wait_until(lambda: not collector.undeclared("east", 500) - set(collector.numbers()["east"]), what="all of them")
    wait_until(lambda: "ended" in told(collector), what="the end")
    assert_ended_is_last(collector)


def test_the_order_holds_over_lost_connections(broker, collector, make_publisher):
    with AbortingProxy(broker.port, [1, 2, 40, 3, 25]) as proxy:
        publisher = make_publisher(proxy.port)
        publish(publisher, 1, 300)
        publisher.publish(state("ended"))
        assert publisher.flush(60)
        wait_until(lambda: not collector.undeclared("east", 300), what="all of them")
        assert publisher.counts()["connections"] > 3

    assert_ended_is_last(collector)


def test_what_lies_on_the_disk_only_comes_first_too(tmp_path, away, make_publisher):
    broker, collector = away
    publisher = make_publisher(
        broker.port, run_path=tmp_path / "outbox.db", spool=SpoolPlace(tmp_path / "spool.db", BOUNDS), max_bytes=200_000
    )
    for first in range(1, 900, 20):
        publish(publisher, first, first + 19)
        wait_until(lambda: is_stored(publisher._keeper), what="the store has what came")
    publisher.publish(state("ended"))
    wait_until(lambda: publisher.counts()["spool_waiting"] > 100, what="some are on the disk only")
    broker.start()
    assert publisher.flush(60)

    wait_until(lambda: len(set(collector.numbers()["east"])) == 900, what="all of them")
    assert_ended_is_last(collector)


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_next_start_says_so_behind_what_the_one_before_has_left(tmp_path, away, make_publisher, is_cut):
    """`is_cut`: it finds what a power cut leaves, the disk; otherwise also what is left in /run."""
    disk = tmp_path / "disk"
    disk.mkdir()
    first = make_publisher(
        free_port(), run_path=tmp_path / "outbox.db", spool=SpoolPlace(disk / "spool.db", BOUNDS), max_bytes=4 << 20
    )
    publish(first, 1, 300)
    first.publish(state("ended"))
    wait_until(lambda: is_on_disk(first._keeper), what="all is on the disk")
    if is_cut:
        shutil.copytree(disk, disk := tmp_path / "copied")
    first.close()
    broker, collector = away
    run_path = None if is_cut else tmp_path / "outbox.db"
    second = make_publisher(
        broker.port, epoch=42, run_path=run_path, spool=SpoolPlace(disk / "spool.db", BOUNDS), max_bytes=4 << 20
    )
    for seq in range(1, 101):
        second.publish(msgspec.structs.replace(detections(seq), epoch=42))
    second.publish(state("ended"))
    broker.start()
    assert second.flush(60)

    wait_until(lambda: len(told(collector)) >= 400, what="all of both starts")
    assert_ended_is_last(collector)


def test_a_stream_that_comes_back_is_not_said_to_have_ended(broker, collector, make_publisher):
    publisher = make_publisher(broker.port)
    wait_until(lambda: publisher.is_connected, what="the connection")
    broker.freeze()
    publish(publisher, 1, 50)
    publisher.publish(state("ended"))
    publisher.publish(state("connecting"))
    broker.thaw()
    assert publisher.flush(60)

    wait_until(lambda: not collector.undeclared("east", 50), what="all of them")
    assert "ended" not in told(collector)
    assert publisher.counts()["waiting"] == 0
