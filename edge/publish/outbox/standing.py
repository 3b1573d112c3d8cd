"""What a start of the service knows of its spool: the file, its clock, who wrote what is in it, how far it had come."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from edge.publish.messages import GapMessage, NumberedKind
from edge.publish.outbox.clock import SpoolClock
from edge.publish.outbox.disk import Disk, SpoolRow, Start, salvaged
from edge.publish.outbox.entry import Entry
from edge.publish.outbox.file import DiskError, SpoolDamagedError, is_plain, remove, replace_damaged
from edge.publish.outbox.records import KINDS, Maker, SeqKey, entry_of, open_gap
from edge.publish.outbox.spool import Spool
from edge.publish.outbox.spooled import SpooledOutbox

__all__ = ["SpoolStanding", "damage_gaps", "maker_from_start", "rebuilt", "reached_as_json", "reached_from_json"]

_AT_ONCE = 500


class _Reached(msgspec.Struct, frozen=True, array_like=True):
    stream: str
    of: NumberedKind
    seq: int


_reached_decoder = msgspec.json.Decoder(list[_Reached])
_maker_decoder = msgspec.json.Decoder(Maker)


def reached_as_json(reached: Mapping[SeqKey, int]) -> bytes:
    """Return the last durable number of each account of one start as text."""
    return msgspec.json.encode([(stream, of, seq) for (stream, _, of), seq in reached.items()])


def reached_from_json(text: bytes, epoch: int) -> dict[SeqKey, int]:
    """Return what `reached_as_json` was given.

    Raises:
        SpoolDamagedError: when that is not what it is.
    """
    try:
        return {(one.stream, epoch, one.of): one.seq for one in _reached_decoder.decode(text)}
    except msgspec.MsgspecError as error:
        raise SpoolDamagedError(f"expected numbers that were reached: {error}") from error


def maker_from_start(start: Start) -> Maker:
    """Return what the packed frames of a start have in common.

    Raises:
        SpoolDamagedError: when that cannot be read.
    """
    try:
        return _maker_decoder.decode(start.about)
    except msgspec.MsgspecError as error:
        raise SpoolDamagedError(f"expected what start {start.epoch} says of itself: {error}") from error


class SpoolStanding:
    """Of the thread that writes.

    Attributes:
        path: of the file.
        clock: the time of its messages.
        opening: how a file is opened that is not open.
        not_begun: why the disk did not take that this start has begun, when its file was opened late; None: it did.
    """

    def __init__(self, path: Path, clock: SpoolClock, *, maker: Maker) -> None:
        self.path = path
        self.clock = clock
        self.opening: Callable[[], Disk] = self._open_plainly
        self.not_begun: str | None = None
        self._disk: Disk | None = None
        self._maker = maker
        self._about = msgspec.json.encode(maker)
        self._makers = {maker.epoch: maker}

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._disk is not None

    @property
    def disk(self) -> Disk:
        """The file.

        Raises:
            DiskError: when it is not open.
        """
        if self._disk is None:
            raise DiskError("the file could not be opened")
        return self._disk

    def begin(self, disk: Disk, makers: Mapping[int, Maker]) -> None:
        """Take over an open file, and what is known of the starts that wrote it."""
        self._disk = disk
        self._makers = {**makers, **self._makers}

    def open(self) -> None:
        """Open a file that is not open.

        Raises:
            DiskError: when that cannot be done.
            SpoolDamagedError: when it is damaged.
        """
        self._disk = self.opening()
        self.opening = self._open_plainly

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    def _open_plainly(self) -> Disk:
        return Disk.open(self.path)

    def start(self, reached: bytes, *, is_ended: bool) -> Start:
        """Return what is said of this start."""
        return Start(self._maker.epoch, self._about, reached, is_ended)

    def entry(self, row: SpoolRow, *, was_sent: bool) -> Entry | None:
        """Return the message of a row; None where it cannot be read."""
        made = entry_of(row.head, row.body, self._makers.get(row.start), was_sent=was_sent, ticket=row.ticket)
        if made is None or made.number is None:
            return None
        return msgspec.structs.replace(made, accepted_at_s=self.clock.monotonic_s(row.at_s))

    def declare_damage(self, outbox: SpooledOutbox, count: int, reached: Mapping[SeqKey, int]) -> None:
        """Declare that any number of any start that has written here may be missing: which ones is not known."""
        outbox.declare_damage(count, damage_gaps(self._makers.values(), self._maker, reached))

    def renew(self) -> None:
        """Begin the file anew: nothing in it is needed.

        Raises:
            DiskError: when that cannot be done.
        """
        self.close()
        remove(self.path)
        self.open()

    def put_back(self, on_step: Callable[[], None]) -> Path:
        """Write the file anew at its path, where another one or none is now; return where that other one would be.

        Args:
            on_step: called when the disk has answered.

        Raises:
            DiskError: when that cannot be done, or another process has what is there now; all is as it was then.
            SpoolDamagedError: when the file cannot be read.
        """
        with contextlib.suppress(SpoolDamagedError):
            if is_plain(self.path) and not self.disk.is_at_path():
                Disk.open(self.path).close()
        new = self.path.with_name(f".{self.path.name}.new")
        remove(new)
        self.disk.copy_to(new, on_step)
        aside = replace_damaged(self.path, new)
        self.close()
        self.open()
        return aside

    def replace(self, outbox: SpooledOutbox, spool: Spool) -> Path:
        """Go on with a new file that holds what can be read of the damaged one; return where that is now.

        Raises:
            DiskError: when that cannot be done.
            SpoolDamagedError: when the new one cannot be read either.
        """
        reached = spool.reached()
        self.disk.close()
        gaps = damage_gaps(self._makers.values(), self._maker, reached)
        starts = [
            Start(one.epoch, msgspec.json.encode(one), b"[]", one is not self._maker) for one in self._makers.values()
        ]
        aside = rebuilt(self.path, starts, [*outbox.gap_payloads(), *(gap.encode() for gap in gaps)])
        self._disk = disk = Disk.open(self.path)
        outbox.begin_again([(ticket, is_event) for ticket, is_event, _ in disk.tickets()], gaps)
        return aside


def rebuilt(path: Path, starts: Iterable[Start], gaps: Iterable[bytes]) -> Path:
    """Put a new spool at `path` that holds what can be read of the damaged one; return where that is now.

    Raises:
        DiskError: when that cannot be done; the damaged one is still there then.
    """
    new = path.with_name(f".{path.name}.new")
    remove(new)
    disk = Disk.open(new)
    try:
        rows = salvaged(path)
        while some := list(itertools.islice(rows, _AT_ONCE)):
            disk.commit(rows=some)
        for start in starts:
            disk.commit(start=start)
        disk.commit(gaps=gaps)
        disk.flush()
    finally:
        disk.close()
    return replace_damaged(path, new)


def damage_gaps(makers: Iterable[Maker], ours: Maker, reached: Mapping[SeqKey, int]) -> list[GapMessage]:
    """Return the records that say so; those of this start end at the number that it has reached."""
    gaps = []
    for maker in makers:
        for stream in maker.streams:
            for of in KINDS:
                account = stream, maker.epoch, of
                last = reached.get(account, 0) if maker.epoch == ours.epoch else None
                if last != 0:
                    gaps.append(open_gap(account, device=ours.device, reason="spool-corrupt", last=last))
    return gaps
