"""How an outbox begins: with what earlier starts have left in ring and spool, and what a power cut has taken."""

from __future__ import annotations

import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edge.publish.messages import GapMessage, InfoMessage
from edge.publish.outbox.clock import SpoolClock
from edge.publish.outbox.disk import Disk
from edge.publish.outbox.file import DiskError, SpoolDamagedError
from edge.publish.outbox.found import FoundSpool, find_spool
from edge.publish.outbox.keeper import Bounds, Keeper
from edge.publish.outbox.kept import Left, open_kept
from edge.publish.outbox.outbox import Outbox
from edge.publish.outbox.records import maker_of
from edge.publish.outbox.spool import Spool
from edge.publish.outbox.spooled import SpooledOutbox
from edge.publish.outbox.standing import SpoolStanding

__all__ = ["Opened", "SpoolPlace", "open_outbox"]

# A start that does not know which tickets the disk holds begins where an earlier epoch has not been.
_TICKET_BITS = 30

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SpoolPlace:
    """Where the spool lies, and its bounds."""

    path: Path
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True, slots=True)
class Opened:
    """An outbox, the thread of its spool if it has one (not started), and whether its messages outlive the process."""

    outbox: Outbox
    keeper: Keeper | None
    is_kept: bool


def open_outbox(
    info: InfoMessage,
    *,
    max_bytes: int,
    live_s: float,
    ring_path: Path | None = None,
    spool: SpoolPlace | None = None,
    on_more: Callable[[], None] = lambda: None,
    patience_s: Callable[[], float] = lambda: 0.0,
) -> Opened:
    """Return an outbox with all that earlier starts have left.

    A disk or a folder that cannot be used is logged, and no error: messages are in memory then.

    Args:
        info: the birth message of this start.
        max_bytes: memory that messages may take.
        live_s: from which age on they are late.
        ring_path: where they outlive the process; None: nowhere.
        spool: where they outlive a power cut; None: nowhere.
        on_more: called when there is more to send, from the spool's thread.
        patience_s: how long a message may be on its way before it should be on the disk, too.
    """
    found, trouble = (None, "") if spool is None else _find(spool.path, info)
    saved = {} if found is None else found.tickets
    kept, left = (None, Left()) if ring_path is None else open_kept(ring_path, max_bytes, info=info, saved=saved)
    first_ticket = 1 + max([*saved, *(entry.ticket for entry in left.entries)], default=0)
    if spool is None:
        outbox = Outbox(device=info.device, max_bytes=max_bytes, live_s=live_s, kept=kept, first_ticket=first_ticket)
        outbox.restore(left.entries, left.gaps)
        return Opened(outbox, None, kept is not None)
    if found is None:
        first_ticket = max(first_ticket, info.epoch << _TICKET_BITS)
    maker = maker_of(info)
    state = Spool(maker)
    spooled = SpooledOutbox(
        state, device=info.device, max_bytes=max_bytes, live_s=live_s, kept=kept, first_ticket=first_ticket
    )
    clock = SpoolClock(0.0 if found is None else found.newest_s, time_s=time.time)
    standing = SpoolStanding(spool.path, clock, maker=maker)
    keeper = Keeper(spooled, state, standing, bounds=spool.bounds, on_more=on_more, patience_s=patience_s)
    state.wake = keeper.wake
    if found is None:
        unsure = _unsure(left)
        spooled.restore(unsure.entries, unsure.gaps)
        state.is_usable = False
        standing.opening = functools.partial(_join, spooled, standing, left, info, first_ticket)
        keeper.trouble.say(trouble)
        return Opened(spooled, keeper, kept is not None)
    gaps = _gaps(left, found, info)
    spooled.restore(left.entries, gaps, saved=saved)
    not_begun = _begin(found, standing, [gap.encode() for gap in gaps])
    state.are_gaps_new = not_begun is not None
    keeper.trouble.say(not_begun)
    if found.was_damaged:
        keeper.trouble.was_damaged()
    return Opened(spooled, keeper, True)


def _find(path: Path, info: InfoMessage) -> tuple[FoundSpool | None, str]:
    """Return what is on the disk, or why that is not known."""
    try:
        return find_spool(path, info), ""
    except (DiskError, SpoolDamagedError) as error:
        return None, str(error)


def _unsure(left: Left) -> Left:
    """Return what was in the ring where the disk may hold it, too: what is given up of it may have been sent."""
    entries = deque(msgspec.structs.replace(entry, was_sent=True) for entry in left.entries)
    gaps = [msgspec.structs.replace(gap, exact=False) for gap in left.gaps]
    return Left(entries, gaps, left.epoch, left.is_damaged)


def _join(outbox: SpooledOutbox, standing: SpoolStanding, left: Left, info: InfoMessage, first_ticket: int) -> Disk:
    """Open the disk of a start that could not do so at its beginning, and take over what lies there.

    Raises:
        DiskError: when it still cannot be opened, or its messages cannot be put in one order with those of this start.
        SpoolDamagedError: when not even a new one can be read.
    """
    found = find_spool(standing.path, info)
    if max(found.tickets, default=0) >= first_ticket:
        found.disk.close()
        raise DiskError("what it holds is counted beyond this start: the next one takes it over")
    outbox.join(found.tickets, {entry.ticket for entry in left.entries}, _gaps_of_disk(left, found, info))
    standing.not_begun = _begin(found, standing, outbox.gap_payloads())
    if standing.not_begun is not None:
        outbox.have_gaps_written_again()
    return found.disk


def _gaps(left: Left, spooled: FoundSpool, info: InfoMessage) -> list[GapMessage]:
    """Return all gap records that wait: of the ring, of the disk, and of what a power cut has taken."""
    if left.epoch is None or left.is_damaged:
        found = list(left.gaps)
    else:  # the ring has all of them; what it declares may still lie on the disk
        found = [gap if gap in spooled.gaps else msgspec.structs.replace(gap, exact=False) for gap in left.gaps]
    return [*found, *_gaps_of_disk(left, spooled, info)]


def _gaps_of_disk(left: Left, spooled: FoundSpool, info: InfoMessage) -> list[GapMessage]:
    """Return those of which the ring knows nothing: it knows all of them if its start had this disk."""
    has_known = not left.is_damaged and left.epoch in {start.epoch for start in spooled.starts}
    known = [] if has_known and not spooled.was_damaged else [gap for gap in spooled.gaps if gap not in left.gaps]
    return [*known, *spooled.power_losses(info.device, but=left.epoch)]


def _begin(spooled: FoundSpool, standing: SpoolStanding, gaps: Sequence[bytes]) -> str | None:
    """Say on the disk that this start has begun, before it gives a number, and that those before are accounted for.

    Returns why the disk did not take that, None: it did.
    """
    standing.begin(spooled.disk, spooled.makers)
    if spooled.tickets:
        _log.info("messages are on the disk path=%s count=%d", standing.path, len(spooled.tickets))
    start = standing.start(b"[]", is_ended=False)
    try:
        spooled.disk.commit(gaps=gaps, start=start, ended=[start.epoch for start in spooled.unfinished])
        spooled.disk.forget_starts(start.epoch)
    except (DiskError, SpoolDamagedError) as error:
        return str(error)
    return None
