"""The spool on a real disk: what is written, what comes back, what is let go, and what a power cut takes."""

import contextlib
import shutil
import sqlite3
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.publish.outbox.keeper import Bounds
from tests.support.spool_life import Life
from tests.support.wait import wait_until


@pytest.fixture
def life(tmp_path):
    return Life(tmp_path)


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


def test_a_connected_broker_writes_nothing(life):
    life.begin().frames(50, settled=False)
    for _ in range(50):
        life.outbox.acknowledge(life.outbox.take())
        life.keeper.tick()

    assert life.keeper._disk.rows(0, 100) == ([], [])


def test_an_event_is_on_the_disk_before_it_can_be_sent(life):
    life.begin().events(3)
    assert life.outbox.take() is None
    life.keeper.tick()
    rows, _ = life.keeper._disk.rows(0, 10)

    assert [row.is_event for row in rows] == [True] * 3
    life.deliver()
    assert life.numbers("events") == [1, 2, 3]
    wait_until(lambda: life.keeper.tick() or not life.keeper._disk.rows(0, 10)[0], what="the rows go")


def test_a_kill_and_a_restart_lose_nothing_and_send_nothing_twice(life):
    for _ in range(3):
        life.begin().frames(700)
        life.events(5)
        life.settle()
        life.frames(30, settled=False)
        life.kill()
    life.begin().deliver()

    found = life.prove()
    assert not found.open_from, "nothing was lost, so nothing is declared"
    assert life.balances()["numbered_waiting"] == 0


def test_a_power_cut_loses_what_was_not_written_and_says_so(life):
    life.begin().frames(700)
    life.events(5)
    life.settle()
    life.frames(30, settled=False)
    life.cut()
    life.begin().deliver()

    found = life.prove()
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
    life.begin().deliver()

    found = life.prove()
    assert {account: first for account, first in found.open_from.items() if account[0] == "east"} == {
        ("east", epoch): 21 for epoch in (41, 42, 43)
    }


def test_a_clean_stop_keeps_everything_over_a_boot_and_declares_nothing(life):
    life.begin().frames(100, settled=False)
    life.events(2)
    life.stop()
    shutil.rmtree(life.run)
    life.run.mkdir()
    life.begin().deliver()

    assert life.numbers() == list(range(1, 101))
    assert life.numbers("events") == [1, 2]
    assert life.gaps() == []


def test_without_a_ring_the_disk_is_enough(tmp_path):
    life = Life(tmp_path, has_ring=False)
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
    assert life.keeper._disk.file_bytes < 3 << 20
    counts = life.balances()
    assert counts["numbered_in_gaps"] > 2000
    assert life.outbox.declared_by_reason() == {"spool-bytes": counts["numbered_in_gaps"]}
    life.deliver()

    life.prove()
    assert life.numbers("events") == [1, 2, 3, 4, 5], "events are let go last"
    assert max(life.numbers()) == 8000, "the newest stay"
    assert all(gap["exact"] for gap in life.gaps())


def test_what_the_bound_let_go_is_declared_after_a_power_cut_too(tmp_path):
    life = Life(tmp_path, bounds=Bounds(max_bytes=1 << 20, max_age_s=3600.0, free_bytes=0))
    life.begin()
    for _ in range(20):
        life.frames(200)
    life.cut()
    life.begin().deliver()

    found = life.prove()
    assert found.declared["east", 41]
    assert found.open_from["east", 41] == 4001


def test_what_is_too_old_is_declared(tmp_path, monkeypatch):
    life = Life(tmp_path, bounds=Bounds(max_bytes=64 << 20, max_age_s=60.0, free_bytes=0))
    life.begin().frames(1000)
    life.events(2)
    life.settle()
    life.stop()
    later_s = time.time() + 61.0
    monkeypatch.setattr("time.time", lambda: later_s)
    life.begin().frames(10)
    wait_until(lambda: life.keeper.tick() or len(life.outbox.declared_by_reason()) == 1, what="the old ones go")
    life.deliver()

    life.prove()
    assert {gap["reason"] for gap in life.gaps()} == {"spool-age"}
    assert [seq for seq in life.numbers() if seq <= 10] == list(range(1, 11)), "the new ones came"


def test_a_clock_that_was_set_back_by_a_year_costs_nothing(life, monkeypatch):
    life.begin().frames(300)
    life.events(2)
    life.settle()
    life.stop()
    now_s = time.time
    monkeypatch.setattr("time.time", lambda: now_s() - 365 * 86400)
    life.begin().frames(300)
    life.kill()
    life.begin().frames(10)
    assert life.keeper.oldest_s < 600
    life.deliver()

    life.prove()
    assert not life.gaps()
    assert life.numbers() == [*range(1, 301), *range(1, 301), *range(1, 11)], "in the order of the starts"


def test_a_disk_that_is_short_keeps_events_and_says_so(tmp_path, caplog):
    life = Life(tmp_path, bounds=Bounds(max_bytes=64 << 20, max_age_s=3600.0, free_bytes=1 << 60))
    life.begin()
    life.keeper.tick()
    life.frames(1000, settled=False)
    life.events(3)
    wait_until(lambda: life.keeper.tick() or len(life.keeper._disk.rows(0, 10)[0]) == 3, what="the events are written")

    assert "are free: frames wait in memory only" in caplog.text
    assert life.outbox.declared_by_reason() == {"spool-bytes": life.balances()["numbered_in_gaps"]}
    life.deliver()
    life.prove()


def damage_all(path):
    """Overwrite the file and what lies beside it with letters."""
    for part in path.parent.glob("spool.db*"):
        part.write_bytes(b"x" * part.stat().st_size)


@pytest.mark.parametrize("content", [b"", b"nonsense", bytes(1 << 16), b"SQLite format 3\0" + bytes(5000)])
def test_f38_what_is_no_spool_is_set_aside_and_declared(life, content, caplog):
    life.path.write_bytes(content)
    life.begin().frames(10)
    life.deliver()

    life.published["east", 40] = 0
    assert life.numbers() == list(range(1, 11))
    if content:  # an empty file is one that SQLite had just begun
        assert {(gap["epoch"], gap["reason"], gap["to"]) for gap in life.gaps()} == {(40, "spool-corrupt", None)}
        assert life.path.with_name("spool.db.damaged").read_bytes() == content
        assert "set aside" in caplog.text


def test_f38_a_spool_that_is_damaged_while_it_runs_is_replaced(life, caplog):
    life.begin()
    for _ in range(10):
        life.frames(100)
    away = life.outbox.counts()["spool_waiting"]
    assert away > 500
    life.keeper._disk.flush()
    damage_all(life.path)
    life.keeper._disk._connection.execute("PRAGMA cache_size=0")  # so that it reads the file
    life.frames(100)
    life.deliver()

    life.prove()
    assert {gap["reason"] for gap in life.gaps()} == {"spool-corrupt"}
    assert "set aside" in caplog.text
    life.balances()


def test_f38_one_flipped_bit_is_found_and_declared(life):
    life.begin().frames(900)
    life.stop()
    content = bytearray(life.path.read_bytes())
    content[content.index(b'"seq":450,')] ^= 1
    life.path.write_bytes(content)
    shutil.rmtree(life.run)
    life.run.mkdir()
    life.begin().deliver()

    assert set(range(1, 901)) - set(life.numbers()) == {450}
    assert {(gap["reason"], gap["epoch"], gap["exact"]) for gap in life.gaps()} >= {("spool-corrupt", 41, False)}
    life.prove()


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
    life.begin().deliver()

    life.prove()
    life.balances()


@pytest.mark.parametrize("at", [18, 47])  # the versions of the format that may write it, and of its tables
def test_f38_a_head_of_a_later_format_is_damage_and_no_disk_that_takes_nothing(life, caplog, at):
    life.begin().frames(900)
    life.stop()
    content = bytearray(life.path.read_bytes())
    content[at] = 7
    life.path.write_bytes(content)
    life.begin().frames(900)
    life.deliver()

    life.prove()
    assert "set aside" in caplog.text
    assert life.keeper.counts()["spool_works"] == 1


def test_f38_events_that_an_index_does_not_show_come_from_a_new_file(life, caplog):
    life.begin().events(20)
    life.settle()
    life.stop()
    shutil.rmtree(life.run)
    life.run.mkdir()
    with contextlib.closing(sqlite3.connect(life.path, isolation_level=None)) as raw:
        (schema,) = raw.execute("SELECT sql FROM sqlite_schema WHERE name = 'of_event'").fetchone()
        raw.executescript(f"DROP INDEX of_event; {schema.replace('WHERE is_event', 'WHERE is_event = 7')};")
        raw.execute("PRAGMA writable_schema=ON")
        raw.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'of_event'", (schema,))
    life.begin().deliver()

    assert sorted(life.numbers("events")) == list(range(1, 21))
    assert "20 messages that are in it are not found" in caplog.text
    life.prove()


def test_what_lies_beside_a_spool_that_is_gone_is_not_taken_into_a_new_one(life):
    life.begin().frames(300)
    life.keeper._disk.flush()
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
    life.deliver()

    life.prove()
    life.balances()
    life.stop()


@pytest.fixture(scope="module")
def whole_spool(tmp_path_factory):
    """The files of a start that was killed, with a log that is not in the database yet."""
    life = Life(tmp_path_factory.mktemp("whole"), has_ring=False)
    life.begin().frames(200)
    life.events(3)
    life.settle()
    life.keeper._disk.flush()
    life.frames(100)
    return {path.name: path.read_bytes() for path in life.disk.iterdir()}
