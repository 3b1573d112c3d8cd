"""A start of the service that spools: `python -m tests.support.spooling_process FOLDER [RUN]`, to be recorded and cut.

It says on its standard output what it has done: `put KIND SEQ` accepted, `written KIND SEQ` on the disk as far as it
knows, `taken KIND SEQ` sent, `acked KIND SEQ` the broker has it, or a gap record that names it.
"""

import json
import os
import sys
from pathlib import Path

import msgspec

from edge.publish.outbox.bounds import Bounds
from edge.publish.outbox.message import Entry, entry_from_message
from edge.publish.outbox.recovery import SpoolPlace, open_outbox
from edge.publish.outbox.writer import Writer
from tests.support.wait import wait_until
from tests.support.wire_messages import birth, detections, event

EPOCH = 41
BOUNDS = Bounds(max_bytes=300_000, max_age_s=3600.0, free_bytes=0)


def is_on_disk(keeper: Writer) -> bool:
    """Return whether all that was accepted and is not settled is on the disk."""
    return is_stored(keeper) and keeper.places.run.at_s() is None


def is_stored(keeper: Writer) -> bool:
    """Return whether the store has all that was accepted; beside a filled /run memory holds a quarter of its bound."""
    keeper._outbox.admit()
    stored = keeper._stored
    with stored._lock:
        return not stored._new


def say(what: str, kind: str, seq: int) -> None:
    os.write(1, f"{what} {kind} {seq}\n".encode())


class Start:
    def __init__(self, folder: Path, run: str = "") -> None:
        self.outbox, keeper = open_outbox(
            msgspec.structs.replace(birth(), epoch=EPOCH),
            max_bytes=60_000,
            live_s=0.0,
            run_path=folder / run if run else None,
            spool=SpoolPlace(folder / "spool.db", BOUNDS),
        )
        assert keeper is not None
        self.keeper = keeper
        self.last = {"detections": 0, "events": 0}

    def put(self, kind: str, count: int) -> None:
        for _ in range(count):
            self.last[kind] += 1
            seq = self.last[kind]
            message = detections(seq, count=3) if kind == "detections" else event(seq)
            self.outbox.put(entry_from_message(message))
            say("put", kind, seq)

    def settle(self) -> None:
        wait_until(lambda: self.keeper.tick() or is_on_disk(self.keeper), what="all is written")
        for kind, seq in self.last.items():
            say("written", kind, seq)

    def take(self, most: int) -> list[Entry]:
        taken = []
        while len(taken) < most and (entry := self.outbox.take()) is not None:
            taken.append(entry)
            if entry.number is not None:
                say("taken", entry.number.of, entry.number.seq)
        return taken

    def acknowledge(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.number is not None:
                say("acked", entry.number.of, entry.number.seq)
            if entry.is_gap:
                gap = json.loads(entry.encode())
                for seq in range(gap["from"], gap["to"] + 1):
                    say("acked", gap["of"], seq)
            self.outbox.acknowledge(entry)


def main(folder: Path, run: str = "") -> None:
    start = Start(folder, run)
    for _ in range(4):  # an outage: more than memory holds, and events
        start.put("detections", 15)
        start.put("events", 2)
        start.settle()
        start.put("detections", 3)
    start.acknowledge(start.take(25))  # a broker comes, takes some, and goes
    start.settle()
    taken = start.take(12)
    start.acknowledge(taken[:6])
    start.outbox.put_back_all()
    for _ in range(12):  # more than the disk may hold
        start.put("detections", 40)
        start.settle()
    start.put("events", 2)
    start.settle()
    while entries := start.take(40):
        start.acknowledge(entries)
        start.settle()
    start.put("detections", 5)
    start.keeper.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
