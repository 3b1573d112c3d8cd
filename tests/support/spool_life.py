"""Starts of the service over one disk and one /run, without a broker: what a spool keeps, and what is declared."""

from __future__ import annotations

import json
import shutil

import msgspec

from edge.publish.outbox.entry import entry_from_message
from edge.publish.outbox.keeper import Bounds
from edge.publish.outbox.opening import SpoolPlace, open_outbox
from tests.support.event_messages import event
from tests.support.promise import findings
from tests.support.wait import wait_until
from tests.support.wire_messages import birth, detections

ROOMY = Bounds(max_bytes=64 << 20, max_age_s=3600.0, free_bytes=0)


class Life:
    """One start of the service after another over one disk; the thread of the spool is driven by hand."""

    def __init__(self, folder, *, has_ring=True, max_bytes=200_000, bounds=ROOMY):
        self.disk, self.run = folder / "disk", folder / "run"
        self.disk.mkdir()
        self.run.mkdir()
        self.has_ring, self.max_bytes, self.bounds = has_ring, max_bytes, bounds
        self.epoch = 40
        self.received, self.published = [], {}
        self.outbox = self.keeper = None

    @property
    def path(self):
        return self.disk / "spool.db"

    def begin(self):
        self.epoch += 1
        opened = open_outbox(
            msgspec.structs.replace(birth(), epoch=self.epoch),
            max_bytes=self.max_bytes,
            live_s=0.0,
            ring_path=self.run / "ring" if self.has_ring else None,
            spool=SpoolPlace(self.path, self.bounds),
        )
        self.outbox, self.keeper = opened.outbox, opened.keeper
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

    def events(self, count):
        for _ in range(count):
            seq = self.published.get(("east events", self.epoch), 0) + 1
            self.outbox.put(entry_from_message(msgspec.structs.replace(event(seq), epoch=self.epoch)))
            self.published["east events", self.epoch] = seq

    def settle(self):
        """Let all that is due be written."""
        wait_until(lambda: self.keeper.tick() or not self.keeper._spool._unwritten, what="all is written")

    def kill(self):
        """The process ends; the machine runs on."""
        self.keeper._standing.close()
        if self.outbox._kept is not None:
            self.outbox._kept.close()

    def cut(self):
        """The power goes after all that was written has reached the disk."""
        self.kill()
        shutil.rmtree(self.run)
        self.run.mkdir()

    def stop(self):
        self.keeper.close()
        self.outbox.end()

    def deliver(self):
        """A broker takes all that waits."""

        def take():
            while (entry := self.outbox.take()) is not None:
                self.received.append((f"edge/{entry.topic}", entry.encode()))
                self.outbox.acknowledge(entry)
            self.keeper.tick()
            return not self.outbox.counts()["waiting"]

        wait_until(take, what=lambda: f"all is delivered: {self.outbox.counts()}")

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

    def prove(self, *, most_duplicates=0):
        found = findings(self.received, may_be_open=True, has_events=True)
        streams = {name for name, _ in self.published} | {"east", "east events"}
        accounts = {(name, epoch): 0 for name in streams for epoch in range(41, self.epoch + 1)}
        found.prove(accounts | self.published, most_duplicates=most_duplicates)
        return found
