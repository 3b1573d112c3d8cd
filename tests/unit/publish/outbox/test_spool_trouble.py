"""What a start does that is not sure of its disk: what it declares, what it leaves alone, what does not wait for it."""

import json

import pytest

from edge.publish.outbox.disk import Disk
from edge.publish.outbox.file import DiskError
from tests.support.spool_life import Life

FULL = "database or disk is full"


@pytest.fixture
def life(tmp_path):
    return Life(tmp_path)


def elsewhere(life):
    return life.disk.with_name("elsewhere")


def look_now(life):
    """Let the disk be tried, and its file be looked for, now and not some seconds later."""
    life.keeper._retry_s = life.keeper._looked_s = -1e9
    life.keeper.tick()


def is_full(*_, **__):
    raise DiskError(FULL)


def of_the_first(life):
    """What came of the first start: numbers of frames, and of each gap record its beginning and if it is exact."""
    messages = [(topic, json.loads(payload)) for topic, payload in life.received]
    ours = [(topic, one) for topic, one in messages if one["epoch"] == 41]
    frames = {one["seq"] for topic, one in ours if topic.endswith("/replay")}
    return frames, [(one["from"], one["exact"]) for topic, one in ours if topic.endswith("/gaps")]


def test_what_came_from_the_ring_and_is_given_up_may_still_be_on_the_disk_so_its_record_is_not_exact(life):
    life.begin().frames(50)
    life.kill()
    life.disk.rename(elsewhere(life))
    life.begin().frames(3000, settled=False)
    life.deliver()
    assert of_the_first(life) == (set(), [(1, False)])
    life.kill()
    elsewhere(life).rename(life.disk)
    life.begin().deliver()
    assert of_the_first(life)[0] == set(range(1, 51))


def test_what_the_ring_declares_may_still_be_on_the_disk_so_its_record_is_not_exact(life):
    life.begin().frames(100)
    life.disk.rename(elsewhere(life))
    look_now(life)
    life.frames(3000, settled=False)
    life.kill()
    life.begin().deliver()
    frames, gaps = of_the_first(life)
    assert min(frames) > 100
    assert gaps == [(1, False)]
    life.kill()
    elsewhere(life).rename(life.disk)
    life.begin().deliver()
    assert of_the_first(life)[0] == frames | set(range(1, 101))


def test_a_full_disk_is_not_begun_anew_over_a_file_that_another_process_has(life):
    life.begin().frames(50)
    life.deliver()
    assert life.keeper._spool.is_disk_settled()
    life.keeper._stumble(FULL)
    life.path.unlink()
    other = Disk.open(life.path)
    try:
        inode = life.path.stat().st_ino
        look_now(life)
        assert life.path.stat().st_ino == inode
        assert "is locked" in life.keeper.trouble.now
    finally:
        other.close()


def test_a_disk_that_takes_nothing_as_a_start_begins_is_told_at_once(life, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Disk, "commit", is_full)
        life.begin()
        assert life.keeper.trouble.now == FULL
        assert life.keeper.counts()["spool_works"] == 0
    look_now(life)
    assert life.keeper.trouble.now is None
    assert [(start.epoch, start.is_ended) for start in life.keeper._disk.starts()] == [(41, False)]


def test_events_that_wait_for_a_disk_whose_file_is_gone_are_sent_without_it(life, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Disk, "commit", is_full)
        life.begin()
    told = []
    monkeypatch.setattr(life.keeper, "_on_more", lambda: told.append("more"))
    life.events(2)
    assert life.outbox.take() is None
    life.disk.rename(elsewhere(life))
    look_now(life)
    assert told == ["more"]
    life.events(1)
    assert [life.outbox.take().number.seq for _ in range(3)] == [1, 2, 3]


def fails_once(monkeypatch):
    """Let the next transaction fail, and no other."""
    commit = Disk.commit

    def failing(*_, **__):
        monkeypatch.setattr(Disk, "commit", commit)
        raise DiskError(FULL)

    monkeypatch.setattr(Disk, "commit", failing)


@pytest.mark.parametrize("is_late", [False, True])
def test_losses_that_the_disk_does_not_take_as_a_start_begins_are_told_and_written_soon(life, monkeypatch, is_late):
    life.begin().frames(20)
    life.frames(5, settled=False)
    life.cut()
    if is_late:
        life.disk.rename(elsewhere(life))
        life.begin()
        elsewhere(life).rename(life.disk)
        fails_once(monkeypatch)
        look_now(life)
    else:
        fails_once(monkeypatch)
        life.begin()
    assert life.keeper.trouble.now == FULL
    assert "messages are in memory only, which a power cut takes: " in life.keeper.trouble.alarm
    look_now(life)
    assert life.keeper.trouble.now is None
    declared = [json.loads(gap) for gap in life.keeper._disk.gaps()]
    assert [(gap["epoch"], gap["of"], gap["from"]) for gap in declared] == [
        (41, "detections", 21),
        (41, "events", 1),
    ]
    life.cut()
    life.begin().deliver()
    declared = {(gap["epoch"], gap["of"], gap["from"]) for gap in life.gaps()}
    assert {(41, "detections", 21), (41, "events", 1)} <= declared
