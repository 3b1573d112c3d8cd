"""The spool on a real disk: what is written, what comes back, what is let go, and what a power cut takes."""

import contextlib
import errno
import os
import shutil
import sqlite3
import stat
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.publish.outbox.bounds import Bounds
from edge.publish.outbox.places import RunningClock
from edge.publish.outbox.store import Place, Row
from tests.support.logged import logged
from tests.support.spool_life import Life, damage_all
from tests.support.wait import wait_until


def test_a_long_outage_loses_nothing_though_memory_is_small(life):
    life.begin()
    for _ in range(20):
        life.frames(200)
    counts = life.balances()
    assert counts["numbered_in_gaps"] == 0
    assert counts["waiting_bytes"] <= life.max_bytes
    assert counts["spool_waiting"] > 3000
    life.deliver()

    assert life.numbers() == list(range(1, 4001)), "each once, in their order"
    assert life.gaps() == []
    life.balances()


def test_a_long_outage_reads_nothing_back(life, monkeypatch):
    """Each message would otherwise go to and fro between memory and the disk, and its age be looked at again."""
    life.begin().frames(1000)
    rows, read = Place.rows, []
    monkeypatch.setattr(Place, "rows", lambda place, *which, **more: read.append(which) or rows(place, *which, **more))
    for _ in range(20):
        life.frames(10)

    assert len(read) <= 2


def test_a_connected_broker_writes_nothing(life):
    life.begin().frames(50, settled=False)
    for _ in range(50):
        life.outbox.acknowledge(life.outbox.take())
        life.keeper.tick()

    assert life.keeper.places.disk.rows(0, 100) == []


def test_an_event_is_on_the_disk_before_it_can_be_sent(life):
    life.begin().events(3)
    assert life.outbox.take() is None
    life.tick()
    rows = life.keeper.places.disk.rows(0, 10)

    assert [row.is_event for row in rows] == [True] * 3
    life.deliver()
    assert life.numbers("events") == [1, 2, 3]
    wait_until(lambda: life.keeper.tick() or not life.keeper.places.disk.rows(0, 10), what="the rows go")


def test_a_kill_takes_what_the_last_transaction_had_not_and_says_so(life):
    for _ in range(3):
        life.begin().frames(700).events(5).settle()
        life.frames(30, settled=False)
        life.keeper.tick()
        life.frames(7, settled=False)
        life.kill()
    found = life.begin().deliver().prove()
    assert {gap["reason"] for gap in life.gaps()} == {"crash"}
    for epoch in (41, 42, 43):
        assert found.received["east", epoch].keys() == set(range(1, 731))
        assert found.open_from["east", epoch] == 731
        assert found.received["east events", epoch].keys() == set(range(1, 6))
    assert life.balances()["numbered_waiting"] == 0


def test_a_power_cut_loses_what_was_not_written_and_says_so(life):
    life.begin().frames(700).events(5).settle()
    life.frames(30, settled=False)
    life.cut()
    found = life.begin().deliver().prove()
    assert found.open_from == {("east", 41): 701, ("east events", 41): 6}
    assert {gap["reason"] for gap in life.gaps()} == {"power-loss"}
    assert found.received["east", 41].keys() == set(range(1, 701))
    assert found.received["east events", 41].keys() == set(range(1, 6))
    life.stop()
    before = len(life.gaps())
    life.begin().deliver()
    assert len(life.gaps()) == before, "told once"


def test_power_cuts_one_after_the_other_lose_no_declaration(life):
    for _ in range(3):
        life.begin().frames(20)
        life.cut()
    found = life.begin().deliver().prove()
    assert {account: first for account, first in found.open_from.items() if account[0] == "east"} == {
        ("east", epoch): 21 for epoch in (41, 42, 43)
    }


def test_a_clean_stop_keeps_everything_over_a_boot_and_declares_nothing(life):
    life.begin().frames(100, settled=False).events(2)
    life.stop()
    life.boot()
    life.begin().deliver()

    assert life.numbers() == list(range(1, 101))
    assert life.numbers("events") == [1, 2]
    assert life.gaps() == []


def test_without_a_folder_in_run_the_disk_is_enough(tmp_path):
    life = Life(tmp_path, has_run=False)
    life.begin().frames(1500)
    life.stop()
    life.begin().deliver()

    assert life.numbers() == list(range(1, 1501))
    assert life.gaps() == []


def test_what_the_disk_may_hold_is_bounded_and_the_oldest_frames_are_declared(tmp_path):
    life = Life(tmp_path, bounds=Bounds(max_bytes=2 << 20, max_age_s=3600.0, free_bytes=0))
    life.begin().events(5)
    for _ in range(40):
        life.frames(200)
    assert life.keeper.places.disk.file_bytes < 3 << 20
    counts = life.balances()
    assert counts["numbered_in_gaps"] > 2000
    assert life.declared() == {"spool-bytes": counts["numbered_in_gaps"]}
    life.deliver().prove()
    assert life.numbers("events") == [1, 2, 3, 4, 5], "events are let go last"
    assert max(life.numbers()) == 8000, "the newest stay"
    assert all(gap["exact"] for gap in life.gaps())


def test_events_alone_are_bounded_too_and_the_oldest_are_declared(tmp_path):
    life = Life(tmp_path, bounds=Bounds(max_bytes=1 << 20, max_age_s=3600.0, free_bytes=0))
    life.begin()
    for _ in range(20):
        life.events(200).settle()
    assert life.keeper.places.disk.file_bytes < 2 << 20
    counts = life.balances()
    assert counts["numbered_in_gaps"] > 500
    assert life.declared() == {"spool-bytes": counts["numbered_in_gaps"]}
    life.deliver().prove()
    assert max(life.numbers("events")) == 4000, "the newest stay"


def test_the_disk_has_its_room_back_when_the_outage_is_over(tmp_path):
    life = Life(tmp_path, bounds=Bounds(max_bytes=64 << 20, max_age_s=3600.0, free_bytes=0))
    life.begin()
    for _ in range(40):
        life.frames(200)
    assert life.keeper.places.disk.file_bytes > 4 << 20
    life.deliver().prove()
    wait_until(lambda: life.tick() or life.keeper.places.disk.file_bytes < 1 << 20, what="the file is small")


def test_what_the_bound_let_go_is_declared_after_a_power_cut_too(tmp_path):
    life = Life(tmp_path, bounds=Bounds(max_bytes=1 << 20, max_age_s=3600.0, free_bytes=0))
    life.begin()
    for _ in range(20):
        life.frames(200)
    life.cut()
    found = life.begin().deliver().prove()
    assert found.declared["east", 41]
    assert found.open_from["east", 41] == 4001


def test_what_is_too_old_is_declared(tmp_path):
    life = Life(tmp_path, bounds=Bounds(max_bytes=64 << 20, max_age_s=60.0, free_bytes=0))
    life.begin().frames(1000).events(2).settle()
    life.stop()
    life.begin()
    life.keeper.places.clock = RunningClock(time.monotonic() + 61.0)  # the service has run a minute since
    life.frames(10)
    wait_until(lambda: life.keeper.tick() or len(life.declared()) == 1, what="the old ones go")
    life.deliver().prove()
    assert {gap["reason"] for gap in life.gaps()} == {"spool-age"}
    assert [seq for seq in life.numbers() if seq <= 10] == list(range(1, 11)), "the new ones came"


@pytest.mark.parametrize("days", [-365, 365])
def test_a_clock_that_is_set_makes_no_message_older(tmp_path, monkeypatch, days):
    """As of a device whose clock is wrong until a time server answers, in one start or in the next one."""
    life = Life(tmp_path, bounds=Bounds(max_bytes=64 << 20, max_age_s=3600.0, free_bytes=0))
    now_s = time.time
    life.begin().frames(300).events(2).settle()
    monkeypatch.setattr("time.time", lambda: now_s() + days * 86400)
    life.frames(300)
    life.stop()
    life.begin().frames(300)
    life.kill()
    monkeypatch.setattr("time.time", now_s)
    life.begin().frames(10)
    assert life.keeper.oldest_s < 600
    life.deliver().prove()
    assert {gap["reason"] for gap in life.gaps()} == {"crash"}, "of the kill; nothing is too old"
    assert life.numbers() == [*range(1, 601), *range(1, 301), *range(1, 11)], "in the order of the starts"


def test_a_disk_that_is_short_keeps_events_and_says_so(tmp_path, caplog):
    life = Life(tmp_path, bounds=Bounds(max_bytes=64 << 20, max_age_s=3600.0, free_bytes=1 << 60))
    life.begin()
    life.keeper.tick()
    life.frames(1000, settled=False)
    life.events(3)
    wait_until(
        lambda: life.keeper.tick() or len(life.keeper.places.disk.rows(0, 10)) == 3, what="the events are written"
    )

    assert "are free: frames wait in memory only" in caplog.text
    assert life.declared() == {"spool-bytes": life.balances()["numbered_in_gaps"]}
    life.deliver().prove()


def test_a_full_disk_without_a_bound_is_not_said_to_have_too_little_free(tmp_path, monkeypatch, caplog):
    life = Life(tmp_path, bounds=Bounds(max_bytes=64 << 20, max_age_s=3600.0, free_bytes=0))
    life.begin()
    monkeypatch.setattr(type(life.keeper.places.disk), "free_bytes", lambda disk: 0)
    life.frames(10)

    assert not life.keeper.is_short
    assert "are free" not in caplog.text


def test_f38_a_spool_that_is_damaged_while_it_runs_is_replaced(life, caplog):
    life.begin()
    for _ in range(10):
        life.frames(100)
    away = life.outbox.counts()["spool_waiting"]
    assert away > 500
    damage_all(life.keeper.places.disk)
    life.frames(100).deliver().prove()
    assert {gap["reason"] for gap in life.gaps()} == {"spool-corrupt"}
    assert "spool-damaged" in logged(caplog)
    life.balances()


@pytest.mark.parametrize("left_bytes", [0, 1, 60])
@pytest.mark.parametrize("has_log", [False, True])
def test_f38_a_file_that_was_emptied_is_not_taken_for_a_new_one(life, left_bytes, has_log):
    life.begin().frames(900)
    content = {one: one.read_bytes() for one in life.disk.iterdir()}
    life.cut()
    for one, written in content.items():  # closing it has emptied its log
        one.write_bytes(written)
    if not has_log:
        life.path.with_name("spool.db-wal").unlink()
    life.path.write_bytes(life.path.read_bytes()[:left_bytes])
    life.begin().deliver().prove()
    life.balances()


def with_byte(find):
    """Change one byte of a file, that at the place found in its content."""

    def change(path):
        content = bytearray(path.read_bytes())
        content[find(content)] ^= 1
        path.write_bytes(content)

    return change


def with_table(statement):
    def change(path):
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute(statement)

    return change


UNREADABLE = Row(9999, 41, False, 1.0, bytes(1), bytes(1))


@pytest.mark.parametrize(
    "change",
    [
        with_byte(lambda content: content.index(b'"seq":450,')),
        with_byte(lambda content: 18),  # of a later format, that of the file
        with_byte(lambda content: 47),  # and that of its tables
        with_table("PRAGMA user_version=4"),
        with_table("UPDATE start SET crc = crc + 1"),
        with_table("INSERT INTO gap VALUES(1, 'text', 0)"),
        with_table(f"INSERT INTO gap VALUES(1, x'ff', {zlib.crc32(b'1' + bytes([255]))})"),
        with_table(f"INSERT INTO start VALUES(1, x'ff', {zlib.crc32(b'1' + bytes([255]))})"),
        with_table("UPDATE message SET at_s = 'late'"),
        with_table(f"INSERT INTO message VALUES(9999, 41, 0, 1.0, x'00', x'00', {UNREADABLE.crc})"),
    ],
)
def test_f38_other_content_than_was_written_is_damage_and_no_disk_that_takes_nothing(life, caplog, change):
    life.begin().frames(900)
    life.stop()
    change(life.path)
    life.begin().frames(9)
    life.deliver().prove()
    assert "spool-damaged" in logged(caplog)
    assert ("spool-corrupt", 41, None) in {(gap["reason"], gap["epoch"], gap["to"]) for gap in life.gaps()}
    assert life.path.with_name("spool.db.damaged").exists()
    life.balances()
    assert life.keeper.counts()["spool_works"] == 1


def test_starts_whose_messages_were_delivered_are_forgotten_and_the_file_is_of_its_owner_alone(life):
    for _ in range(5):
        life.begin().frames(9)
        life.deliver()
        life.stop()
        life.path.chmod(0o644)
    life.begin()

    assert [epoch for epoch, _ in life.keeper.places.disk.starts()] == [life.epoch]
    assert stat.S_IMODE(life.path.stat().st_mode) == 0o600


def test_a_disk_that_does_not_say_what_is_free_is_told_and_asked_again(life, monkeypatch):
    life.begin().frames(9)
    monkeypatch.setattr(os, "statvfs", lambda path: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    life.look()
    assert "Input/output error" in life.keeper.trouble.now
    monkeypatch.undo()
    life.look()
    assert life.keeper.trouble.now is None


def test_f38_events_that_an_index_does_not_show_come_from_a_new_file(life, caplog):
    life.begin().events(20)
    life.settle()
    life.stop()
    life.boot()
    with contextlib.closing(sqlite3.connect(life.path, isolation_level=None)) as raw:
        (schema,) = raw.execute("SELECT sql FROM sqlite_schema WHERE name = 'of_event'").fetchone()
        raw.executescript(f"DROP INDEX of_event; {schema.replace('WHERE is_event', 'WHERE is_event = 7')};")
        raw.execute("PRAGMA writable_schema=ON")
        raw.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'of_event'", (schema,))
    life.begin().deliver()

    assert "20 messages that are in it are not found" in caplog.text
    life.prove()


def test_what_lies_beside_a_spool_that_is_gone_is_not_taken_into_a_new_one(life):
    life.begin().frames(300)
    life.keeper.places.disk.flush()
    life.frames(100)
    log = life.path.with_name("spool.db-wal").read_bytes()
    life.stop()
    shutil.rmtree(life.disk)
    life.disk.mkdir()
    life.path.with_name("spool.db-wal").write_bytes(log)
    (life.disk / ".spool.db.made").write_bytes(b"of a start that was killed while it made one")
    life.begin().frames(5)
    life.deliver()

    assert life.numbers()[-5:] == [1, 2, 3, 4, 5]
    assert sorted(one.name for one in life.disk.iterdir()) == ["spool.db", "spool.db-wal"]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_f38_any_damage_is_survived_and_nothing_is_lost_unsaid(tmp_path_factory, whole_spool, data):
    """A file that another start has left, cut off or with flipped bytes anywhere, its log as well."""
    life = Life(tmp_path_factory.mktemp("damaged"))
    life.epoch, life.published = 41, {("east", 41): 300, ("east events", 41): 3}
    for name, content in whole_spool.items():
        damaged = bytearray(content)
        for _ in range(data.draw(st.integers(0, 3))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
        if data.draw(st.booleans()):
            del damaged[data.draw(st.integers(0, len(damaged))) :]
        (life.disk / name).write_bytes(damaged)
    life.begin().frames(5)
    life.deliver().prove()
    life.balances()
    life.stop()


@pytest.fixture(scope="module")
def whole_spool(tmp_path_factory):
    """The files of a start that was killed, with a log that is not in the database yet."""
    life = Life(tmp_path_factory.mktemp("whole"), has_run=False)
    life.begin().frames(200).events(3).settle()
    life.keeper.places.disk.flush()
    life.frames(100)
    return {path.name: path.read_bytes() for path in life.disk.iterdir()}
