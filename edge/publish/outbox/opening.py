"""How an outbox begins: with what earlier starts have left in ring and spool, and what a power cut has taken."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from edge.publish.messages import GapMessage, InfoMessage
from edge.publish.outbox.clock import SpoolClock
from edge.publish.outbox.disk import Disk, Start, salvaged_starts
from edge.publish.outbox.file import DiskError, SpoolDamagedError
from edge.publish.outbox.keeper import Bounds, Keeper
from edge.publish.outbox.kept import Left, open_kept
from edge.publish.outbox.outbox import Outbox
from edge.publish.outbox.records import KINDS, Maker, maker_of, open_gap, open_gaps
from edge.publish.outbox.spool import Spool
from edge.publish.outbox.spooled import SpooledOutbox
from edge.publish.outbox.standing import Standing, damage_gaps, maker_from_start, reached_from_json, rebuilt

__all__ = ["Opened", "SpoolPlace", "open_outbox"]

_log = logging.getLogger(__name__)
_gap_decoder = msgspec.json.Decoder(GapMessage)


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


@dataclass(frozen=True, slots=True)
class _Spooled:
    """What lies on the disk; `was_damaged`: this start has put it in the place of a damaged one."""

    disk: Disk
    makers: dict[int, Maker] = field(default_factory=dict)
    gaps: Sequence[GapMessage] = ()
    tickets: dict[int, bool] = field(default_factory=dict)
    newest_s: float = 0.0
    starts: Sequence[Start] = ()
    was_damaged: bool = False


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
    spooled = None if spool is None else _open_spool(spool.path, info)
    saved = {} if spooled is None else spooled.tickets
    kept, left = (None, Left()) if ring_path is None else open_kept(ring_path, max_bytes, info=info, saved=saved)
    first_ticket = 1 + max([*saved, *(entry.ticket for entry in left.entries)], default=0)
    if spooled is None or spool is None:
        outbox = Outbox(device=info.device, max_bytes=max_bytes, live_s=live_s, kept=kept, first_ticket=first_ticket)
        outbox.restore(left.entries, left.gaps)
        return Opened(outbox, None, kept is not None)
    maker = maker_of(info)
    state = Spool(maker)
    outbox = SpooledOutbox(
        state, device=info.device, max_bytes=max_bytes, live_s=live_s, kept=kept, first_ticket=first_ticket
    )
    gaps = _gaps(left, spooled, info)
    standing = Standing(
        spooled.disk, SpoolClock(spooled.newest_s, time_s=time.time), maker=maker, makers=spooled.makers
    )
    keeper = Keeper(outbox, state, standing, bounds=spool.bounds, on_more=on_more, patience_s=patience_s)
    outbox.restore(left.entries, gaps, saved=saved)
    _begin(spooled, standing, gaps)
    state.wake = keeper.wake
    if spooled.was_damaged:
        keeper.trouble.was_damaged()
    if spooled.tickets:
        _log.info("messages are on the disk path=%s count=%d", spool.path, len(spooled.tickets))
    return Opened(outbox, keeper, True)


def _open_spool(path: Path, info: InfoMessage) -> _Spooled | None:
    try:
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
    except (DiskError, SpoolDamagedError) as error:
        _log.warning("messages are in memory only path=%s error=%s", path, error)
        return None


def _replace(path: Path, info: InfoMessage) -> Path:
    """Put in the place of a damaged spool what can be read of it; any number of its starts may be missing."""
    starts = salvaged_starts(path)
    makers = [maker_from_start(start) for start in starts]
    gaps = damage_gaps(makers, maker_of(info), {})
    if not any(maker.epoch == info.epoch - 1 for maker in makers):
        gaps += open_gaps(None, info, ())
    whole = [msgspec.structs.replace(start, is_ended=True) for start in starts]
    return rebuilt(path, whole, [gap.encode() for gap in gaps])


def _read(disk: Disk) -> _Spooled:
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
    return _Spooled(disk, makers, gaps, tickets, newest_s, starts)


def _gaps(left: Left, spooled: _Spooled, info: InfoMessage) -> list[GapMessage]:
    """Return all gap records that wait: of the ring, of the disk, and of what a power cut has taken."""
    if left.epoch is None or left.is_damaged:
        found = [*left.gaps, *(gap for gap in spooled.gaps if gap not in left.gaps)]
    else:  # the ring has all of them; what it declares may still lie on the disk
        found = [gap if gap in spooled.gaps else msgspec.structs.replace(gap, exact=False) for gap in left.gaps]
        if spooled.was_damaged:  # of which the ring knows nothing
            found += [gap for gap in spooled.gaps if gap not in left.gaps]
    for start in spooled.starts:
        if not start.is_ended and start.epoch != left.epoch:
            found += _power_loss(start, spooled.makers[start.epoch], info)
    return found


def _power_loss(start: Start, maker: Maker, info: InfoMessage) -> Iterable[GapMessage]:
    """Return which numbers a start may have given that neither the ring nor the disk has."""
    reached = reached_from_json(start.reached, start.epoch)
    streams = dict.fromkeys([*maker.streams, *(stream for stream, _, _ in reached)])
    _log.warning("the last run did not end by itself epoch=%d: what it may have lost is declared", start.epoch)
    for stream in streams:
        for of in KINDS:
            account = stream, start.epoch, of
            yield open_gap(account, device=info.device, reason="power-loss", first=reached.get(account, 0) + 1)


def _begin(spooled: _Spooled, standing: Standing, gaps: Sequence[GapMessage]) -> None:
    """Say on the disk that this start has begun, before it gives a number, and that those before are accounted for."""
    ended = [start.epoch for start in spooled.starts if not start.is_ended]
    start = standing.start(b"[]", is_ended=False)
    try:
        spooled.disk.commit(gaps=[gap.encode() for gap in gaps], start=start, ended=ended)
        spooled.disk.forget_starts(start.epoch)
    except (DiskError, SpoolDamagedError) as error:
        _log.warning("messages are in memory only path=%s error=%s", spooled.disk.path, error)
