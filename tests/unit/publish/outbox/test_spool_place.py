"""A spool that is not where it should be: no folder at the start, another thing in its place, taken away as it runs."""

import contextlib
import os
import socket
import sqlite3

import pytest

from edge.publish.outbox.store import Store
from tests.support.logged import logged
from tests.support.spool_life import FULL, Absent, Life, full, kill_in_a_move, try_in_vain, works
from tests.support.wait import wait_until


def test_events_do_not_wait_for_a_disk_that_is_not_there(life):
    Absent(life)
    life.begin().events(3)
    life.keeper.tick()
    assert [life.outbox.take().number.seq for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("has_run", [True, False])
def test_a_start_without_its_disk_takes_over_what_is_there_when_it_comes(tmp_path, has_run, caplog):
    life = Life(tmp_path, has_run=has_run)
    life.begin().frames(900).events(5).settle()
    life.stop()
    disk = Absent(life)
    life.begin()
    assert life.keeper.counts()["spool_works"] == 0
    assert life.keeper.trouble.alarm
    life.frames(50, settled=False)
    life.events(2)
    life.keeper.tick()
    assert life.outbox.counts()["numbered_in_gaps"] == 0
    disk.mend()
    life.frames(600)
    found = life.deliver().prove()
    assert not found.open_from
    assert not life.gaps(), "nothing was lost, so nothing is declared"
    life.balances()
    life.stop()
    life.begin().deliver().prove()
    assert not life.gaps()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_what_lies_on_a_disk_that_does_not_come_is_declared_and_still_comes_later(life, end):
    life.begin().frames(200).settle()
    getattr(life, end)()
    disk = Absent(life)
    life.begin()
    try_in_vain(life)
    found = life.deliver().prove()
    assert set(found.open_from.values()) == {1}
    told = [(gap["stream"], gap["of"], gap["epoch"]) for gap in life.gaps() if gap["reason"] == "spool-corrupt"]
    assert len(told) == len(set(told)) > 0, "each account once, however often the disk was tried"
    gaps = len(life.gaps())
    disk.mend()
    life.deliver().prove()
    assert len(life.gaps()) == gaps


def test_a_disk_that_comes_late_and_damaged_is_told_as_one_that_is_damaged_at_the_start(life):
    life.begin().frames(20)
    life.settle()
    life.kill()
    disk = Absent(life)
    (disk.elsewhere / life.path.name).write_bytes(b"nonsense")
    life.begin()
    assert "damaged" not in (life.keeper.trouble.alarm or "")

    disk.mend()

    assert "was damaged and is set aside" in life.keeper.trouble.alarm


def test_what_lies_in_both_places_and_was_delivered_from_run_meanwhile_is_not_sent_again(life, monkeypatch):
    life.begin().frames(40, settled=False)
    kill_in_a_move(life, monkeypatch)
    disk = Absent(life)
    life.begin().deliver()
    disk.mend()
    life.settle()
    life.deliver()
    assert life.keeper.places.disk.tickets() == {}
    assert {gap["reason"] for gap in life.gaps()} == {"crash"}
    life.balances()
    life.prove()


def test_what_memory_could_not_hold_meanwhile_is_declared_and_still_comes_from_the_disk(life):
    life.begin().frames(50)
    life.kill()
    disk = Absent(life)
    life.begin().frames(3000, settled=False)
    assert life.balances()["numbered_in_gaps"] > 1000
    disk.mend()
    life.deliver().prove()
    life.balances()


def test_what_a_power_cut_took_is_declared_when_the_disk_comes_and_again_nothing_by_the_next_start(life):
    life.begin().frames(100)
    life.frames(10, settled=False)
    life.cut()
    disk = Absent(life)
    life.begin().frames(20, settled=False)
    disk.mend()
    life.deliver()
    assert life.prove().open_from == {("east", 41): 101, ("east events", 41): 1}
    life.stop()
    before = len(life.gaps())
    life.begin().deliver()
    assert len(life.gaps()) == before


def test_a_power_cut_after_the_disk_came_is_declared(life):
    disk = Absent(life)
    life.begin().frames(20, settled=False)
    disk.mend()
    life.settle()
    life.frames(7, settled=False)
    life.cut()
    found = life.begin().deliver().prove()
    assert found.received["east", 41].keys() == set(range(1, 21))
    assert found.open_from["east", 41] == 21


def test_gap_records_on_a_disk_that_the_last_start_never_had_are_not_lost(life):
    """The ring knows all of them only where its start had the disk."""
    life.begin().frames(900)
    life.keeper.bounds = type(life.bounds)(max_bytes=64 << 20, max_age_s=0.0, free_bytes=0)
    life.keeper._looked_s = -1e9
    wait_until(lambda: life.keeper.tick() or life.balances()["numbered_in_gaps"] > 500, what="the old ones are let go")
    life.stop()
    life.boot()
    disk = Absent(life)
    life.begin().frames(10, settled=False)
    life.kill()
    disk.elsewhere.rename(life.disk)
    life.begin().deliver().prove()


def test_a_disk_that_never_comes_ends_in_peace(life, caplog):
    Absent(life)
    life.begin().frames(5, settled=False)
    life.look()
    life.stop()
    assert "Traceback" not in caplog.text


def test_a_disk_that_counts_beyond_this_start_is_left_to_the_next(life):
    life.begin().frames(10)
    life.outbox._next_ticket = 1 << 60
    life.frames(10)
    life.stop()
    life.boot()
    disk = Absent(life)
    life.begin().frames(5, settled=False)
    disk.elsewhere.rename(life.disk)
    life.look()
    assert "the next one takes it over" in life.keeper.trouble.now
    life.deliver()
    life.kill()
    life.begin().deliver().prove()
    assert len(life.numbers()) == 25


def make_pipe(path):
    os.mkfifo(path)


def make_folder(path):
    path.mkdir()
    (path / "spool.db").write_bytes(b"of somebody")


def make_link(path):
    other = path.with_name("other.db")
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE mine(word)")
    path.symlink_to(other)


def make_dangling_link(path):
    path.symlink_to(path.with_name("nowhere"))


def make_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the names of sockets are short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)
    os.chdir(here)


def holding(content):
    def make(path):
        path.write_bytes(content)

    return make


make_nonsense = holding(b"nonsense")
THINGS = (make_pipe, make_folder, make_link, make_dangling_link, make_socket, make_nonsense)


def content_beside(life):
    """What lies in the folder that is not ours."""
    other, nowhere = life.path.with_name("other.db"), life.path.with_name("nowhere")
    return (other.read_bytes() if other.exists() else None), nowhere.exists()


@pytest.mark.parametrize("make", [*THINGS, *map(holding, [b"", bytes(1 << 16), b"SQLite format 3\0" + bytes(5000)])])
def test_f38_what_is_no_file_of_ours_is_set_aside_at_the_start_and_not_followed(life, make, caplog):
    make(life.path)
    before = content_beside(life)
    life.begin().frames(700)
    life.deliver()

    assert life.numbers() == list(range(1, 701))
    assert content_beside(life) == before
    assert "set aside as spool.db.damaged" in caplog.text
    assert {(gap["epoch"], gap["reason"], gap["to"]) for gap in life.gaps()} == {(40, "spool-corrupt", None)}
    assert life.path.with_name("spool.db.damaged").lstat()
    assert "was damaged" in life.keeper.trouble.alarm


@pytest.mark.parametrize("make", [make_pipe, make_link])
def test_f38_what_lies_beside_the_file_and_is_none_is_not_opened(life, make):
    life.begin().frames(300)
    life.stop()
    make(life.path.with_name("spool.db-wal"))
    before = content_beside(life)
    life.boot()
    life.begin().frames(5)
    life.deliver().prove()
    assert content_beside(life) == before


def take_file(life):
    life.path.unlink()


def take_all(life):
    for path in life.disk.iterdir():
        path.unlink()


def replaced_by(make):
    def replace(life):
        life.path.unlink()
        make(life.path)

    replace.__name__ = make.__name__
    return replace


@pytest.mark.parametrize("has_run", [True, False])
@pytest.mark.parametrize("take", [take_file, take_all, *map(replaced_by, THINGS)])
def test_f38_a_file_that_is_taken_away_is_begun_anew_and_what_was_only_there_is_declared(
    tmp_path, take, has_run, caplog
):
    life = Life(tmp_path, has_run=has_run, max_bytes=600_000)
    life.begin().frames(900).events(5).settle()
    in_memory = {entry.number.seq for entry in life.outbox._backlog if not entry.is_event}
    take(life)
    before = content_beside(life)
    life.look()
    assert "spool-taken-away" in logged(caplog)
    assert life.keeper.trouble.now is None, "there is a new one"
    life.frames(300)
    life.cut() if not has_run else life.kill()
    found = life.begin().deliver().prove()
    assert found.received["east", 41].keys() >= in_memory | set(range(901, 1201))
    assert found.received["east events", 41].keys() == set(range(1, 6))
    assert ("spool-corrupt", 41) in {(gap["reason"], gap["epoch"]) for gap in life.gaps()}
    assert content_beside(life) == before


def test_f38_a_folder_that_is_gone_is_said_and_no_message_is_left_to_it(life):
    life.begin().frames(100)
    elsewhere = life.disk.with_name("elsewhere")
    life.disk.rename(elsewhere)
    for _ in range(3):
        life.look()
        assert life.keeper.counts()["spool_works"] == 0
        assert "messages are in memory only" in life.keeper.trouble.alarm
    for _ in range(30):
        life.frames(100, settled=False)
        life.keeper.tick()
    life.events(2)
    life.disk.mkdir()
    works(life)
    life.frames(10)
    life.kill()
    life.begin().deliver().prove()
    assert life.numbers("events") == [1, 2]


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_file_that_another_process_has_is_not_taken_from_it(life, is_needed):
    """As of two services that begin at once: the one whose file was replaced leaves the other's alone."""
    life.begin().frames(60)
    if not is_needed:  # then a full disk has its room back
        life.deliver().tick()
        assert life.outbox.stored.is_disk_settled(life.keeper.places.disk.tickets())
        life.keeper._stumble(FULL)
    life.path.unlink()
    other = Store()
    other.open(life.path, is_durable=True)
    try:
        inode = life.path.stat().st_ino
        life.look()
        assert "is locked" in life.keeper.trouble.now
        assert life.path.stat().st_ino == inode
    finally:
        other.close()
    works(life)
    life.settle()
    life.kill()
    life.begin().deliver()
    assert life.numbers() == list(range(1, 61)), "all of them were in memory, too"


def test_a_new_file_that_cannot_be_made_after_the_old_one_is_gone_is_made_later(life, monkeypatch):
    life.begin().frames(50)
    life.deliver()
    wait_until(
        lambda: life.tick() or life.outbox.stored.is_disk_settled(life.keeper.places.disk.tickets()),
        what="nothing is needed of it",
    )
    life.keeper._stumble(FULL)
    life.keeper._retry_s = -1e9
    with monkeypatch.context() as patched:
        patched.setattr(Store, "open", full("spool.db", "open"))
        life.keeper.tick()
        life.keeper.tick()
    works(life)
    life.frames(20)
    life.kill()
    life.begin().deliver()
    assert life.numbers() == list(range(1, 71))
    assert {gap["reason"] for gap in life.gaps()} <= {"crash"}
