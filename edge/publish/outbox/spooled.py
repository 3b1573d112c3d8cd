"""An outbox with a spool: what the thread that writes to the disk asks of it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from edge.publish.messages import GapMessage, GapReason
from edge.publish.outbox.entry import Entry, entry_from_message
from edge.publish.outbox.outbox import Outbox
from edge.publish.outbox.spool import Spool

__all__ = ["SpooledOutbox"]


class SpooledOutbox(Outbox):
    """Knows which messages are on the disk. Options are those of `Outbox`."""

    def __init__(self, spool: Spool, **options: Any) -> None:
        super().__init__(spool=spool, **options)
        spool.attach(self._lock, self._backlog, self._max_bytes)
        self._on_disk = spool

    def join(self, saved: Mapping[int, bool], restored: Container[int], gaps: Sequence[GapMessage]) -> None:
        """Take over what earlier starts have left on a disk that is open only now: options as those of `Spool.join`."""
        with self._lock:
            records = [entry_from_message(gap) for gap in gaps]
            away, declared = self._on_disk.join(saved, restored), sum(record.gap_count for record in records)
            self._losses.extend(records)
            self._balance.accepted += len(records) + away
            self._balance.declared += declared
            self._balance.numbered += declared + away
            self._commit()

    def gap_payloads(self) -> list[bytes]:
        """Return all gap records that wait or are on their way, as they are to lie on the disk now."""
        with self._lock:
            self._on_disk.are_gaps_new = False
            return self._gap_payloads()

    def have_gaps_written_again(self) -> None:
        """Have the next write take all gap records: the last one that should have did not."""
        with self._lock:
            self._on_disk.are_gaps_new = True

    def let_go_written(self, entries: Mapping[int, Entry | None], reason: GapReason) -> None:
        """Let messages on the disk go, by ticket, and declare them; None: that cannot be read. One on its way stays."""
        spool = self._on_disk
        with self._lock:
            for ticket, written in entries.items():
                if spool.is_here(ticket):
                    entry = self._backlog.take_ticket(ticket)
                    if entry is not None:
                        self._forget(entry, reason)
                elif written is not None and spool.let_go_away(ticket, is_event=written.is_event):
                    self._balance.let_go += 1
                    self._declare(written, reason)
            self._commit()
            self._notify_if_idle()

    def declare_damage(self, count: int, gaps: Sequence[GapMessage]) -> None:
        """Declare that messages on the disk are lost, `count` of them; `gaps` say where."""
        with self._lock:
            self._lose_on_disk(count, gaps)

    def begin_again(self, found: Iterable[tuple[int, bool]], gaps: Sequence[GapMessage]) -> None:
        """Take note that the spool is another file, of the tickets that it has, and declare what it has not."""
        with self._lock:
            self._lose_on_disk(self._on_disk.begin_again([*self._flight.unsettled(), *self._backlog], found), gaps)

    def _lose_on_disk(self, count: int, gaps: Sequence[GapMessage]) -> None:
        self._balance.lose_unnamed(count, "spool-corrupt")
        self._balance.accepted += len(gaps)
        self._losses.extend(map(entry_from_message, gaps))
        self._commit()
        self._notify_if_idle()
