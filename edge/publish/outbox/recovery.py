"""How an outbox begins: with what earlier starts have left in the store, and what a kill or a power cut has taken."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edge.publish.messages import GapMessage, GapReason, InfoMessage
from edge.publish.outbox.bounds import Bounds
from edge.publish.outbox.places import Places, RunningClock, Said, open_gaps, said_in
from edge.publish.outbox.queue import Outbox
from edge.publish.outbox.store import Place, PlaceDamagedError, PlaceUnusableError, Store, StoreError, set_aside
from edge.publish.outbox.writer import Writer

__all__ = ["SpoolPlace", "open_outbox"]

# A start that does not know which tickets the disk holds begins where an earlier epoch has not been.
_TICKET_BITS = 30
_DISK_MISSES = 4  # some seconds apart: one that comes a little late costs no gap record
_RUN_SHARE = 3 / 4  # of the memory that messages may take, for those in /run

_log = logging.getLogger(__name__)
_gap_decoder = msgspec.json.Decoder(GapMessage)


@dataclass(frozen=True, slots=True)
class SpoolPlace:
    """Where the store lies on the disk, and its bounds."""

    path: Path
    bounds: Bounds


@dataclass(slots=True)
class _Found:
    """Contents of a place; `was_damaged`: it was set aside; `trouble`: why it is not open; `disk_misses`, of /run: of
    the disk, since the start.
    """

    place: Place | None = None
    was_damaged: bool = False
    trouble: str | None = None
    starts: dict[int, Said] = field(default_factory=dict)
    gaps: dict[int, GapMessage] = field(default_factory=dict)
    tickets: dict[int, bool] = field(default_factory=dict)
    disk_misses: int = 0


def open_outbox(
    info: InfoMessage,
    *,
    max_bytes: int,
    live_s: float,
    run_path: Path | None = None,
    spool: SpoolPlace | None = None,
    on_more: Callable[[], None] = lambda: None,
    patience_s: Callable[[], float] = lambda: 0.0,
    now_s: Callable[[], float] = time.monotonic,
) -> tuple[Outbox, Writer | None]:
    """Return an outbox with all that earlier starts have left, and the thread that writes, which is not started.

    A disk or a folder that cannot be used is logged, and no error: messages are in memory then. They are late from the
    age of `live_s` on, outlive the process at `run_path` and a power cut in `spool` (None: nowhere), and take
    `max_bytes` in memory and /run together. The thread that writes calls `on_more` when there is more to send, and
    leaves a message that is on its way off the disk for `patience_s`.
    """
    if run_path is None and spool is None:
        return Outbox(device=info.device, max_bytes=max_bytes, live_s=live_s), None
    store = Store()
    disk_path = None if spool is None else spool.path
    run = _found_if_any(store, run_path, is_durable=False)
    disk = _found_if_any(store, disk_path, is_durable=True)
    if run.trouble is not None:
        _log.warning("messages are not kept over a restart path=%s error=%s", run_path, run.trouble)
    places = Places(
        store,
        run.place or store.open(None, is_durable=False),
        clock=RunningClock(max([said.at_s for found in (run, disk) for said in found.starts.values()], default=0.0)),
        maker=info.run_info,
        makers={info.epoch: info.run_info},
        run_path=run_path,
        disk_path=disk_path,
    )
    first = 1 + max([*run.tickets, *disk.tickets, *run.gaps, *disk.gaps], default=0)
    if disk.trouble is not None:
        first = max(first, info.epoch << _TICKET_BITS)
    outbox = Outbox(device=info.device, max_bytes=max_bytes, live_s=live_s, is_kept=True, first_ticket=first)
    bounds, run_bytes = Bounds() if spool is None else spool.bounds, int(max_bytes * _RUN_SHARE)
    writer = Writer(
        outbox, places, bounds=bounds, run_bytes=run_bytes, on_more=on_more, patience_s=patience_s, now_s=now_s
    )
    _take_over(outbox, writer, run, disk, info)
    writer.begin()
    places.join = functools.partial(_join, outbox, writer, run, first, info)
    if disk.trouble is not None:
        writer.say_stumbled(disk.trouble)
    return outbox, writer


def _found_if_any(store: Store, path: Path | None, *, is_durable: bool) -> _Found:
    try:
        return _Found() if path is None else _find(store, path, is_durable=is_durable)
    except StoreError as error:
        return _Found(trouble=str(error))


def _find(store: Store, path: Path, *, is_durable: bool) -> _Found:
    """Open a place, made where there is none; a damaged one is set aside, and begun anew."""
    place = None
    try:
        place = store.open(path, is_durable=is_durable)
        return _read(place)
    except PlaceDamagedError as error:
        if place is not None:
            place.close()
        set_aside(path, error)
    return _Found(store.open(path, is_durable=is_durable), was_damaged=True)


def _read(place: Place) -> _Found:
    found = _Found(place, starts=said_in(place), tickets=place.tickets())
    try:
        found.gaps = {one: _gap_decoder.decode(payload) for one, payload in place.gaps()}
    except msgspec.MsgspecError as error:
        raise PlaceDamagedError(f"expected gap records: {error}", place) from error
    return found


def _take_over(
    outbox: Outbox, writer: Writer, run: _Found, disk: _Found, info: InfoMessage, *, is_late: bool = False
) -> None:
    """Take over what was found; `is_late`: that of the disk, what /run had was taken over before."""
    places, known = writer.places, run if is_late else _Found()
    places.makers = {epoch: said.maker for epoch, said in (disk.starts | run.starts).items()} | places.makers
    both = [*disk.gaps.items(), *run.gaps.items()]  # one that grew may be in either as it was before
    both.sort(key=lambda one: (one[0], one[1].to or 0))
    gaps = {one: gap for one, gap in both if one not in known.gaps}
    places.declared += [gap for gap in gaps.values() if gap.exact]
    tickets = {one: of for one, of in (run.tickets | disk.tickets).items() if one not in known.tickets}
    losses = list(_losses(run, disk, info, is_late=is_late))
    if tickets or gaps or losses:
        count = len(gaps) + len(losses)
        _log.info("messages of the last run are sent now count=%d gaps=%d", len(tickets), count)
    outbox.take_over(tickets, gaps, losses)
    places.disk, places.has_had_disk = disk.place, disk.place is not None
    if disk.was_damaged or (run.was_damaged and not is_late):
        writer.trouble.was_damaged()


def _join(outbox: Outbox, writer: Writer, run: _Found, first_ticket: int, info: InfoMessage) -> None:
    """Open the disk where it is not open, and take over what lies there, if it can be."""
    places = writer.places
    assert places.disk_path is not None
    try:
        disk = _find(places.store, places.disk_path, is_durable=True)
    except StoreError:
        run.disk_misses += not places.has_had_disk
        if run.disk_misses == _DISK_MISSES:
            outbox.take_over({}, {}, _unread(run))
        raise
    assert disk.place is not None
    try:
        if max([*disk.tickets, *disk.gaps], default=0) >= first_ticket:
            raise PlaceUnusableError("what it holds is counted beyond this start: the next one takes it over")
        if in_both := run.tickets.keys() & disk.tickets.keys():  # they may have been delivered meanwhile
            disk.place.commit(gone=in_both)
    except StoreError:
        disk.place.close()
        raise
    if places.has_had_disk:
        disk.was_damaged = False  # then it was another file, in the place of ours
    _take_over(outbox, writer, run, disk, info, is_late=True)
    writer.begin_disk()


def _unread(run: _Found) -> Iterator[GapMessage]:
    """Yield that any number of the starts that /run knows may lie on a disk that does not come."""
    for _, said in sorted(run.starts.items()):
        if said.reached:  # else another start has accounted for it
            yield from open_gaps(said.maker, reason="spool-corrupt")


def _losses(run: _Found, disk: _Found, info: InfoMessage, *, is_late: bool = False) -> Iterator[GapMessage]:
    """Yield which numbers earlier starts may have given that are nowhere.

    /run knows better than the disk how far a start had come; of a start in a damaged place nothing is known.
    """
    starts = disk.starts | run.starts
    for epoch, said in sorted(starts.items()):
        is_ended = any(found.starts[epoch].is_ended for found in (run, disk) if epoch in found.starts)
        if is_ended or (is_late and epoch in run.starts):
            continue
        _log.warning("the last run was killed or lost power epoch=%d: what it may have lost is declared", epoch)
        reason: GapReason = "crash" if epoch in run.starts else "power-loss"
        yield from open_gaps(said.maker, reason="spool-corrupt" if run.was_damaged else reason, after=said.reached)
    if disk.was_damaged or (run.was_damaged and not is_late):
        lost = [said.maker for _, said in sorted(starts.items()) if disk.was_damaged]
        last = max(1, info.epoch - 1)
        if last not in starts:
            lost.append(msgspec.structs.replace(info.run_info, epoch=last))
        for maker in lost:
            yield from open_gaps(maker, reason="spool-corrupt")
