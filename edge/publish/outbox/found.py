"""What earlier starts have left on the disk, and what a power cut has taken of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from edge.publish.messages import GapMessage, InfoMessage
from edge.publish.outbox.disk import Disk, Start, salvaged_starts
from edge.publish.outbox.file import SpoolDamagedError
from edge.publish.outbox.records import KINDS, Maker, maker_of, open_gap, open_gaps
from edge.publish.outbox.standing import damage_gaps, maker_from_start, reached_from_json, rebuilt

__all__ = ["FoundSpool", "find_spool"]

_log = logging.getLogger(__name__)
_gap_decoder = msgspec.json.Decoder(GapMessage)


@dataclass(frozen=True, slots=True)
class FoundSpool:
    """What lies on the disk, which is open; `was_damaged`: this start has put it in the place of a damaged one."""

    disk: Disk
    makers: dict[int, Maker] = field(default_factory=dict)
    gaps: Sequence[GapMessage] = ()
    tickets: dict[int, bool] = field(default_factory=dict)
    newest_s: float = 0.0
    starts: Sequence[Start] = ()
    was_damaged: bool = False

    @property
    def unfinished(self) -> list[Start]:
        """The starts that did not say that they have ended."""
        return [start for start in self.starts if not start.is_ended]

    def power_losses(self, device: str, *, but: int | None) -> Iterator[GapMessage]:
        """Yield which numbers such starts may have given that are not here; `but` has left them elsewhere."""
        for start in self.unfinished:
            if start.epoch != but:
                yield from _power_loss(start, self.makers[start.epoch], device)


def find_spool(path: Path, info: InfoMessage) -> FoundSpool:
    """Open the spool at `path`, made where there is none; a damaged one is set aside for what can be read of it.

    Raises:
        DiskError: when it cannot be opened, or another process has it.
        SpoolDamagedError: when not even a new one can be read.
    """
    try:
        return _read(Disk.open(path))
    except SpoolDamagedError as error:
        aside = _replace(path, info)
        _log.error(
            "spool is damaged path=%s error=%s: set aside as %s, what is missing is declared as a gap",
            path,
            error,
            aside.name,
        )
        return replace(_read(Disk.open(path)), was_damaged=True)


def _replace(path: Path, info: InfoMessage) -> Path:
    """Put in the place of a damaged spool what can be read of it; any number of its starts may be missing."""
    starts = salvaged_starts(path)
    makers = [maker_from_start(start) for start in starts]
    gaps = damage_gaps(makers, maker_of(info), {})
    if not any(maker.epoch == info.epoch - 1 for maker in makers):
        gaps += open_gaps(None, info, ())
    whole = [msgspec.structs.replace(start, is_ended=True) for start in starts]
    return rebuilt(path, whole, [gap.encode() for gap in gaps])


def _read(disk: Disk) -> FoundSpool:
    try:
        starts = disk.starts()
        makers = {start.epoch: maker_from_start(start) for start in starts}
        for start in starts:
            reached_from_json(start.reached, start.epoch)
        tickets: dict[int, bool] = {}
        newest_s = 0.0
        for ticket, is_event, at_s in disk.tickets():
            tickets[ticket] = is_event
            newest_s = max(newest_s, at_s)
        gaps = [_gap_decoder.decode(payload) for payload in disk.gaps()]
    except msgspec.MsgspecError as error:
        disk.close()
        raise SpoolDamagedError(f"expected gap records: {error}") from error
    except BaseException:
        disk.close()
        raise
    return FoundSpool(disk, makers, gaps, tickets, newest_s, starts)


def _power_loss(start: Start, maker: Maker, device: str) -> Iterable[GapMessage]:
    """Return which numbers a start may have given that neither the ring nor the disk has."""
    reached = reached_from_json(start.reached, start.epoch)
    streams = dict.fromkeys([*maker.streams, *(stream for stream, _, _ in reached)])
    _log.warning("the last run did not end by itself epoch=%d: what it may have lost is declared", start.epoch)
    for stream in streams:
        for of in KINDS:
            account = stream, start.epoch, of
            yield open_gap(account, device=device, reason="power-loss", first=reached.get(account, 0) + 1)
