"""One store in two places: what one of them cannot take, what many starts have left, what publishing costs."""

import pytest

from edge.publish.outbox.store import Place
from tests.support.spool_life import Life, damage_all, full, kill_in_a_move
from tests.support.wait import wait_until
from tests.support.wire_messages import detections


def test_rare_events_cost_no_backlog_where_the_disk_takes_nothing(tmp_path):
    life = Life(tmp_path, max_bytes=2 << 20)
    life.disk.rename(life.disk.with_name("elsewhere"))
    life.begin()
    for round_ in range(60):
        life.frames(100, settled=False)
        if round_ % 2:
            life.events(1)
        life.tick()
    counts = life.balances()
    assert counts["numbered_waiting"] > 1500, "of two MiB"
    assert counts["numbered_in_gaps"] > 3000, "they are more than memory holds"
    life.deliver().prove()
    assert life.numbers("events") == list(range(1, 31)), "events are dropped last"


def test_a_full_run_is_taken_by_memory_and_used_again_when_it_has_room(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    life = Life(tmp_path, max_bytes=1 << 20)
    life.begin().frames(300, settled=False)
    life.keeper.tick()
    with monkeypatch.context() as patched:
        patched.setattr(Place, "commit", full("outbox.db"))
        for _ in range(10):
            entry = life.outbox.take()
            life.received.append((f"edge/{entry.topic}", entry.encode()))
            life.outbox.acknowledge(entry)
        patched.setattr(Place, "copy_of", full("outbox.db", "copy_of"))
        life.frames(300)
        assert "messages are not kept over a restart" in caplog.text
        assert life.balances()["numbered_in_gaps"] == 0, "the disk takes them all the same"
    life.skipped_s += 10.0
    life.settle()
    assert "messages are kept over a restart again" in caplog.text
    life.frames(50, settled=False)
    life.keeper.tick()
    life.kill()
    life.begin().deliver()

    assert life.prove().received["east", 41].keys() == set(range(1, 651)), "a kill takes none of them"


def test_a_burst_that_the_writer_has_not_seen_yet_may_fill_all_of_the_memory(tmp_path, monkeypatch):
    """Beside a filled /run memory is a quarter of its bound, for copies of what is in the store."""
    life = Life(tmp_path, max_bytes=200_000)
    life.begin()
    monkeypatch.setattr(Place, "commit", full("spool.db"))
    for _ in range(4):
        life.frames(40, settled=False)
        life.keeper.tick()
    assert life.keeper.places.run.used_bytes > 100_000
    life.frames(110, settled=False)
    counts = life.balances()
    assert (counts["numbered_in_gaps"], counts["numbered_waiting"]) == (0, 270)

    life.frames(300, settled=False)
    counts = life.balances()
    assert counts["numbered_in_gaps"] > 0, "memory has its bound all the same"
    assert counts["waiting_bytes"] <= 200_000
    life.deliver().prove()


def test_a_row_in_both_places_is_sent_once(tmp_path, monkeypatch):
    life = Life(tmp_path)
    life.begin().frames(40, settled=False)
    kill_in_a_move(life, monkeypatch)
    found = life.begin().deliver().prove()
    assert found.received["east", 41].keys() == set(range(1, 41))
    assert life.balances()["numbered_waiting"] == 0
    life.stop()
    life.begin().deliver()
    life.prove(most_duplicates=0)


def test_publishing_takes_no_lock_and_encodes_nothing(tmp_path):
    life = Life(tmp_path)
    life.begin()
    encoded = []

    class Told(type(detections(1))):
        def encode(self):
            encoded.append(self.seq)
            return super().encode()

    message = detections(1, epoch=41)
    told = Told(**{name: getattr(message, name) for name in message.__struct_fields__})
    with life.outbox._lock:
        life.outbox.put(told)
    assert not encoded
    life.published["east", 41] = 1
    life.deliver()
    assert life.numbers() == encoded == [1]


def test_a_row_goes_from_the_disk_with_the_record_that_declares_it(tmp_path):
    """A message is given up between the two transactions of a round, and then the power is cut."""
    life = Life(tmp_path)
    life.begin().frames(20)
    entry = life.outbox.take()
    save = life.keeper._save_now

    def save_and_give_up():
        save()
        life.outbox.park(entry, "refused")

    life.keeper._save_now = save_and_give_up
    life.skipped_s += 1.0
    life.keeper.tick()
    life.cut()
    life.begin().deliver()

    assert life.prove().exactly["east", 41] == {1}


@pytest.fixture
def filled(tmp_path, monkeypatch):
    """A start with 320 messages in /run, some of them there only, while the disk takes nothing; and what ends that."""
    life = Life(tmp_path, max_bytes=400_000)
    life.begin()
    with monkeypatch.context() as patched:
        patched.setattr(Place, "commit", full("spool.db"))
        for _ in range(8):
            life.frames(40, settled=False)
            life.keeper.tick()
        assert life.balances()["spool_waiting"] > 0
        yield life, patched.undo


def test_a_lost_disk_takes_nothing_of_what_lies_only_in_run(filled):
    life, mend_disk = filled
    life.path.unlink()
    life.look()
    mend_disk()
    counts = life.balances()
    assert (counts["numbered_in_gaps"], counts["numbered_waiting"]) == (0, 320)
    assert life.deliver().prove().exactly["east", 41] == set()
    assert life.numbers() == list(range(1, 321))


def test_a_message_that_is_delivered_while_it_is_written_goes_from_run_with_the_next_transaction(tmp_path, monkeypatch):
    life = Life(tmp_path)
    life.begin().frames(3, settled=False)
    commit = Place.commit

    def deliver_meanwhile(place, **parts):
        commit(place, **parts)
        while (entry := life.outbox.take()) is not None:
            life.outbox.acknowledge(entry)

    with monkeypatch.context() as patched:
        patched.setattr(Place, "commit", deliver_meanwhile)
        life.keeper.tick()
    life.keeper.tick()

    assert life.keeper.places.run.tickets() == {}


def test_run_that_is_damaged_while_it_serves_is_begun_anew_and_only_what_was_nowhere_else_is_declared(filled):
    life, mend_disk = filled
    away, run = life.balances()["spool_waiting"], life.keeper.places.run
    damage_all(run)
    for _ in range(5):
        life.keeper.tick()
    mend_disk()
    life.settle()
    counts = life.balances()
    assert (counts["numbered_in_gaps"], counts["numbered_waiting"]) == (away, 320 - away)
    assert life.keeper.places.run is not run
    assert life.keeper.places.run.path == run.path, "in its file again"
    life.frames(5, settled=False)
    life.keeper.tick()
    life.kill()
    life.begin().deliver().prove()
    assert {gap["reason"] for gap in life.gaps()} == {"spool-corrupt", "crash"}


def test_messages_that_become_late_leave_memory_though_nothing_more_is_published(tmp_path):
    life = Life(tmp_path, live_s=0.3)
    life.begin().frames(150, settled=False)

    wait_until(lambda: life.tick() or life.balances()["spool_waiting"], what="they are in the store only", timeout_s=5)
