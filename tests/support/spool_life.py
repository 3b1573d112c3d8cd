"""Starts of the service over one disk and one /run, without a broker: what a spool keeps, and what is declared."""

import json
import shutil
import time

import msgspec
import pytest

from edge.publish.outbox.bounds import Bounds
from edge.publish.outbox.message import entry_from_message
from edge.publish.outbox.recovery import SpoolPlace, open_outbox
from edge.publish.outbox.store import Place, PlaceUnusableError, Store
from tests.support.promise import findings
from tests.support.spooling_process import is_on_disk
from tests.support.wait import wait_until
from tests.support.wire_messages import birth, detections, event

FULL = "database or disk is full"
_LIVES: list["Life"] = []
ROOMY = Bounds(max_bytes=64 << 20, max_age_s=3600.0, free_bytes=0)


class Life:
    """One start of the service after another over one disk; the thread of the spool is driven by hand."""

    def __init__(self, folder, *, has_run=True, max_bytes=200_000, bounds=ROOMY, live_s=0.0):
        self.disk, self.run = folder / "disk", folder / "run"
        self.disk.mkdir()
        self.run.mkdir()
        self.has_run, self.max_bytes, self.bounds, self.live_s = has_run, max_bytes, bounds, live_s
        self.epoch, self.device = 40, "gate-01"
        self.received, self.published = [], {}
        self.outbox = self.keeper = None
        _LIVES.append(self)
        self.skipped_s = 0.0  # how far the clock of the spool's thread was put forward, instead of waiting

    @property
    def path(self):
        return self.disk / "spool.db"

    def begin(self):
        self.epoch += 1
        self.outbox, self.keeper = open_outbox(
            msgspec.structs.replace(birth(), epoch=self.epoch, device=self.device),
            max_bytes=self.max_bytes,
            live_s=self.live_s,
            run_path=self.run / "outbox.db" if self.has_run else None,
            spool=SpoolPlace(self.path, self.bounds),
            now_s=lambda: time.monotonic() + self.skipped_s,
        )
        return self

    def frames(self, count, *, settled=True):
        for _ in range(count):
            seq = self.published.get(("east", self.epoch), 0) + 1
            self.outbox.put(entry_from_message(detections(seq, epoch=self.epoch)))
            self.published["east", self.epoch] = seq
            if settled and seq % 100 == 0:  # memory is small; nobody publishes so much at once
                self.settle()
        if settled:
            self.settle()
        return self

    def events(self, count):
        for _ in range(count):
            seq = self.published.get(("east events", self.epoch), 0) + 1
            self.outbox.put(entry_from_message(msgspec.structs.replace(event(seq), epoch=self.epoch)))
            self.published["east events", self.epoch] = seq
        return self

    def settle(self):
        wait_until(lambda: self.tick() or is_on_disk(self.keeper), what="all is written")
        return self

    def tick(self):
        """Let the spool's thread do what is due a fifth of a second later: more than a message waits for."""
        self.skipped_s += 0.2
        self.keeper.tick()

    @staticmethod
    def end_all():
        """End what a test has left running."""
        for life in _LIVES:
            if life.keeper is not None:
                life.kill()
        _LIVES.clear()

    def kill(self):
        """The process ends; the machine runs on."""
        self.keeper.places.store.close()

    def cut(self):
        """The power goes after all that was written has reached the disk."""
        self.kill()
        self.boot()

    def boot(self):
        """What was in /run is gone."""
        shutil.rmtree(self.run)
        self.run.mkdir()

    def look(self):
        """Let the disk be tried, and its file be looked for, now and not some seconds later."""
        self.keeper._retry_s = self.keeper._looked_s = -1e9
        self.keeper.tick()

    def stop(self):
        self.keeper.close()
        self.outbox.end()

    def deliver(self):
        def take():
            while (entry := self.outbox.take()) is not None:
                self.received.append((f"edge/{entry.topic}", entry.encode()))
                self.outbox.acknowledge(entry)
            self.tick()
            return not self.outbox.counts()["waiting"]

        wait_until(take, what=lambda: f"all is delivered: {self.outbox.counts()}")
        return self

    def gaps(self):
        return [json.loads(payload) for topic, payload in self.received if topic.endswith("/gaps")]

    def numbers(self, kind="replay"):
        return [json.loads(payload)["seq"] for topic, payload in self.received if topic.endswith(f"/{kind}")]

    def balances(self):
        counts = self.outbox.counts()
        parts = ("numbered_acknowledged", "numbered_waiting", "numbered_in_gaps", "numbered_lost")
        assert counts["numbered"] == sum(counts[part] for part in parts)
        assert counts["accepted"] == counts["delivered"] + counts["waiting"] + counts["dropped"]
        return counts

    def declared(self):
        """What this start has declared lost, by reason."""
        counts = self.outbox.counts().items()
        return {name.removeprefix("declared_"): count for name, count in counts if name.startswith("declared_")}

    def prove(self, *, most_duplicates=0):
        found = findings(self.received, may_be_open=True, has_events=True)
        streams = {name for name, _ in self.published} | {"east", "east events"}
        accounts = {(name, epoch): 0 for name in streams for epoch in range(41, self.epoch + 1)}
        found.prove(accounts | self.published, most_duplicates=most_duplicates)
        return found


class Absent:
    """Takes the folder of a disk away, and gives it back."""

    def __init__(self, life):
        self.life, self.elsewhere = life, life.disk.with_name("elsewhere")
        life.disk.rename(self.elsewhere)

    def mend(self):
        self.elsewhere.rename(self.life.disk)
        works(self.life)


def works(life):
    """Let the disk be tried again now, and not some seconds later, until it takes messages."""

    def tries():
        life.look()
        return life.keeper.trouble.now is None

    wait_until(tries, what="the disk works")


def try_in_vain(life):
    """Let a disk be tried as often as it takes until what may lie there is declared."""
    for _ in range(6):
        life.look()


def kill_in_a_move(life, monkeypatch):
    """The process ends between the transaction that moves messages and the one that deletes them in /run."""
    commit = Place.commit

    def once(place, **parts):
        commit(place, **parts)
        if parts.get("moved_from") is not None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Place, "commit", once)
        with pytest.raises(KeyboardInterrupt):
            life.tick()
    assert life.keeper.places.run.tickets() == life.keeper.places.disk.tickets() != {}
    life.kill()


def damage_all(place):
    """Overwrite the file of a place and what lies beside it with letters, and let it be read."""
    place.flush()
    for part in place.path.parent.glob(f"{place.path.name}*"):
        part.write_bytes(b"x" * part.stat().st_size)
    place._pragma("cache_size=0")


def full(name, method="commit"):
    """Return what a method of `Place`, or `open` of `Store`, is where the file of this name takes nothing."""
    real = getattr(Store if method == "open" else Place, method)

    def fails(one, *others, **parts):
        path = others[0] if method == "open" else one.path
        if path is not None and path.name == name:
            raise PlaceUnusableError(FULL, one)
        return real(one, *others, **parts)

    return fails
