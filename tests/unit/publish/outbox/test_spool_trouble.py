"""What a start does that is not sure of its disk: what it declares, what it leaves alone, what does not wait for it."""

import json

import pytest

from edge.publish.outbox.places import said_in
from edge.publish.outbox.store import Place, PlaceUnusableError
from tests.support.spool_life import FULL, Absent, full, works


def test_a_message_that_a_gap_record_names_is_not_sent_from_the_disk(life, monkeypatch):
    """It was given up while the disk took nothing, not even that it goes, and then the process was killed."""
    life.begin().frames(20)
    monkeypatch.setattr(Place, "commit", full("spool.db"))
    entry = life.outbox.take()
    life.outbox.park(entry, "refused")
    life.tick()
    life.kill()
    monkeypatch.undo()
    found = life.begin().deliver().prove()
    assert found.exactly["east", 41] == {1}
    assert found.received["east", 41].keys() == set(range(2, 21))
    assert not any(life.declared().values())  # it was before; and nothing is missing in the file
    life.balances()


def test_a_disk_that_was_read_only_while_nothing_waited_there_is_used_again(life, monkeypatch):
    life.begin().frames(50)
    life.deliver().tick()
    assert life.outbox.stored.is_disk_settled(life.keeper.places.disk.tickets())
    with monkeypatch.context() as patched:
        patched.setattr(Place, "commit", full("spool.db"))
        patched.setattr("edge.publish.outbox.writer.remove", lambda path: Place.commit(life.keeper.places.disk))
        life.frames(5, settled=False)
        life.tick()
        life.look()
    works(life)
    life.settle()
    life.cut()
    life.begin().deliver()
    assert life.prove().received["east", 41].keys() == set(range(1, 56))


def test_a_disk_that_takes_nothing_as_a_start_begins_is_told_at_once(life, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Place, "commit", full("spool.db"))
        life.begin()
        assert life.keeper.trouble.now == FULL
        assert life.keeper.counts()["spool_works"] == 0
    life.look()
    assert life.keeper.trouble.now is None
    assert {epoch: said.is_ended for epoch, said in said_in(life.keeper.places.disk).items()} == {41: False}


def test_events_that_wait_for_a_disk_whose_file_is_gone_are_sent_without_it(life, monkeypatch):
    life.begin()
    told = []
    monkeypatch.setattr(life.keeper, "_on_more", lambda: told.append("more"))
    life.events(2)
    assert life.outbox.take() is None
    Absent(life)
    life.look()
    assert told == ["more"]
    life.events(1)
    assert [life.outbox.take().number.seq for _ in range(3)] == [1, 2, 3]


def fails_once(monkeypatch):
    """Let the next transaction fail, and no other."""
    commit = Place.commit

    def failing(place, **parts):
        if place.path is not None and place.path.name == "spool.db":
            monkeypatch.setattr(Place, "commit", commit)
            raise PlaceUnusableError(FULL, place)
        commit(place, **parts)

    monkeypatch.setattr(Place, "commit", failing)


@pytest.mark.parametrize("is_late", [False, True])
def test_losses_that_the_disk_does_not_take_as_a_start_begins_are_told_and_written_soon(life, monkeypatch, is_late):
    life.begin().frames(20)
    life.frames(5, settled=False)
    life.cut()
    if is_late:
        disk = Absent(life)
        life.begin()
        disk.elsewhere.rename(life.disk)
        fails_once(monkeypatch)
        life.look()
    else:
        fails_once(monkeypatch)
        life.begin()
    assert life.keeper.trouble.told is not None
    assert life.keeper.trouble.alarm
    life.look()
    assert life.keeper.trouble.now is None
    declared = [json.loads(gap) for _, gap in life.keeper.places.disk.gaps()]
    assert [(gap["epoch"], gap["of"], gap["from"]) for gap in declared] == [
        (41, "detections", 21),
        (41, "events", 1),
    ]
    life.cut()
    life.begin().deliver()
    declared = {(gap["epoch"], gap["of"], gap["from"]) for gap in life.gaps()}
    assert {(41, "detections", 21), (41, "events", 1)} <= declared


def test_a_start_that_ended_well_in_run_alone_has_lost_nothing(life, monkeypatch):
    """Its disk was full at the end; all it had not delivered is in /run."""
    life.begin().frames(20)
    life.frames(5, settled=False)
    with monkeypatch.context() as patched:
        patched.setattr(Place, "commit", full("spool.db"))
        life.stop()
    life.begin().deliver()

    assert life.prove().received["east", 41].keys() == set(range(1, 26))
    assert not life.gaps()


def test_what_was_written_counts_as_written_also_where_the_place_fails_right_after_it(life, monkeypatch):
    """Otherwise rows of messages that are delivered then would stay, and the next start would send them again."""
    life.begin().frames(5, settled=False)
    fails, used = iter([True]), Place.used_bytes.fget

    def used_bytes(place):
        if next(fails, False):
            raise PlaceUnusableError("disk I/O error", place)
        return used(place)

    monkeypatch.setattr(Place, "used_bytes", property(used_bytes))
    life.keeper.tick()
    life.deliver()
    life.stop()
    life.begin().deliver().prove()
    life.balances()


def test_a_row_in_run_of_what_was_delivered_from_the_disk_is_no_message_as_long_as_it_cannot_go(life):
    """It would be sent once more, or be given up and declared."""
    stored = life.begin().frames(1, settled=False).outbox.stored
    life.outbox.admit()
    with stored.batch() as (entries, _, _):
        (ticket,) = [entry.ticket for entry in entries]
    stored.moved([ticket])
    life.outbox.acknowledge(life.outbox.take())
    with stored.gone_from_disk() as gone:
        assert gone == {ticket}

    assert not stored.is_away(ticket)
    with stored.batch() as (_, gone, _):
        assert gone == {ticket}
    assert not stored.has_news()
