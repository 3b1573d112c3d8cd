"""What a later start finds on the disk, or has written a second time: marked where it may be out of order."""

import json

import msgspec
import pytest

from edge.publish.frames import FrameMessage
from edge.publish.outbox.message import entry_from_message, made_by
from edge.publish.outbox.queue import Outbox
from edge.publish.outbox.store import Place
from tests.support.spool_life import Absent, Life, full, try_in_vain
from tests.support.wire_messages import birth, detections, found, frame_result


@pytest.mark.parametrize("is_rebooted", [False, True])
def test_what_comes_from_a_disk_after_newer_ones_is_marked_and_what_is_not_marked_is_in_order(
    life, is_rebooted, monkeypatch
):
    life.begin().frames(300).events(3).settle()
    with monkeypatch.context() as patched:
        patched.setattr(Place, "commit", full("spool.db"))
        life.frames(50, settled=False)
        life.events(2)
        life.tick()
        life.kill()
    disk = Absent(life)
    life.begin()
    try_in_vain(life)
    life.deliver()
    before = life.prove()
    assert (before.received["east", 41].keys(), before.recovered) == (set(range(301, 351)), {})
    if is_rebooted:
        life.cut()
        disk.elsewhere.rename(life.disk)
        life.begin()
    else:
        disk.mend()
    found = life.deliver().prove()
    assert found.recovered == {("east", 41): set(range(1, 301)), ("east events", 41): {1, 2, 3}}
    assert found.received["east", 41].keys() == set(range(1, 351))


@pytest.mark.parametrize("is_rebooted", [False, True])
def test_what_was_made_under_another_name_goes_below_it_and_says_it(life, is_rebooted):
    life.begin().frames(150).events(3).settle().frames(2, settled=False)
    life.cut() if is_rebooted else life.kill()
    for name in ("gate-02", "gate-03", "gate-02"):  # what waits is written a second time
        life.device = name
        life.begin().settle()
        life.kill()
    life.begin()
    taken = []
    while life.outbox.counts()["waiting"]:
        life.tick()
        while (entry := life.outbox.take()) is not None:
            taken.append((entry.full_topic("edge/v1/north/gate-02").split("/", 4)[3:], json.loads(entry.encode())))
            life.outbox.acknowledge(entry)

    assert [topic[0] for topic, said in taken] == [said["device"] for _, said in taken]
    assert {(*topic, said["epoch"]) for topic, said in taken if said["device"] == "gate-01"} == {
        ("gate-01", "streams/east/replay", 41),
        ("gate-01", "streams/east/events", 41),
        ("gate-01", "gaps", 41),
    }
    assert {said["epoch"] for _, said in taken if said["device"] == "gate-03"} == {43}


def test_what_is_dropped_of_another_name_is_declared_below_it():
    outbox = Outbox(device="gate-02", max_bytes=1)
    outbox.put(made_by("gate-01", entry_from_message(detections(1)), own="gate-02"))
    outbox.put(entry_from_message(msgspec.structs.replace(detections(1, epoch=42), device="gate-02")))
    records = [outbox.take(), outbox.take()]

    assert [one.full_topic("edge/gate-02") for one in records] == ["edge/gate-01/gaps", "edge/gate-02/gaps"]
    assert [json.loads(one.encode())["device"] for one in records] == ["gate-01", "gate-02"]


def test_what_a_start_has_put_on_the_disk_itself_is_not_marked(life):
    life.begin().frames(900).events(3).settle()
    assert life.balances()["spool_waiting"] > 0
    life.deliver()

    assert not life.prove().recovered


def packed(seq, *, epoch):
    """A frame as the pipeline publishes it: it lies packed in the store."""
    info = msgspec.structs.replace(birth().run_info, epoch=epoch)
    return FrameMessage(frame_result(found((seq % 97, 2.5, 300, 400.25))), info=info, seq=seq)


@pytest.mark.parametrize("made", [packed, detections])
def test_late_frames_that_are_written_a_second_time_still_say_that_they_are_late(tmp_path, made, monkeypatch):
    monkeypatch.setattr("tests.support.spool_life.detections", made)
    life = Life(tmp_path, max_bytes=600_000)
    life.begin().frames(900)
    life.path.unlink()
    life.look()
    life.settle()
    life.kill()
    life.begin().tick()
    while life.outbox.take() is not None:
        pass
    life.outbox.put_back_all()
    while (entry := life.outbox.take(may_replay=False)) is not None:
        assert entry.is_gap, "a late one that comes back is late"
    life.outbox.put_back_all()
    life.deliver()

    assert len(life.numbers()) > 100, "what was in memory"
    life.prove()


def test_what_was_marked_is_so_also_after_it_was_written_a_second_time(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.support.spool_life.detections", packed)
    life = Life(tmp_path, max_bytes=600_000)
    life.begin().frames(900)
    life.stop()
    life.begin().tick()
    life.path.unlink()
    life.look()
    life.keeper._save_now()  # into /run alone
    life.kill()
    life.begin()
    life.keeper._bring_back()  # before they are moved to the disk
    found = life.deliver().prove()
    assert found.recovered["east", 41] == found.received["east", 41].keys() != set()
