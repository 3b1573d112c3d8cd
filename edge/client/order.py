"""Order over all accounts: each stream's epochs one after the other, and in each the numbers.

One account's messages by their numbers: held until those before have come, are declared lost or are given up.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

from edge.publish.ledger import AccountKey, NumberedMessage, Ranges, account_key
from edge.publish.messages import DetectionsMessage, EventMessage, GapMessage, GapReason, NumberedKind

__all__ = ["Late", "Missing", "Numbered", "Ordered", "Resequencer"]

_NO_END = 1 << 63

Numbered: TypeAlias = DetectionsMessage | EventMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Numbers `first` to `last`, both included, that have not come; `last` None: as far as they do not come.

    `reason` is the device's own where it has declared them lost, and None where it has not: a broker lost them. Unless
    `is_exact`, some may still come, as `Late`. What the device declares only later is told again.
    """

    device: str
    stream: str
    epoch: int
    of: NumberedKind
    first: int
    last: int | None
    reason: GapReason | None
    is_exact: bool

    @classmethod
    def of_account(
        cls, key: AccountKey, first: int, last: int | None, *, reason: GapReason | None = None, is_exact: bool = False
    ) -> Missing:
        return cls(**asdict(key), first=first, last=last, reason=reason, is_exact=is_exact)


@dataclass(frozen=True, slots=True)
class Late:
    """A message out of order: its number was given up already, belongs to an older epoch, or lies before your start."""

    message: Numbered


Ordered: TypeAlias = Numbered | Missing | Late


class Sequence:
    """The numbers of one (device, stream, epoch), of its detections or of its events.

    `start` None begins with the first number that is seen. Times are seconds of any clock that only grows.
    """

    def __init__(self, key: AccountKey, *, wait_s: float, most_held: int, start: int | None = None) -> None:
        self._key = key
        self._wait_s = wait_s
        self._most_held = most_held
        self._next: int | None = None  # all below have been passed on or given up
        self._highest = 0
        self._given_up = 0  # up to here nothing is waited for
        self._held: dict[int, Numbered] = {}
        self._held_numbers: list[int] = []  # a heap
        self._gaps: list[GapMessage] = []  # that reach beyond what was passed on
        self._holes: deque[tuple[int, float]] = deque()  # (last number, when it was seen to be missing), rising
        self._filled_s = 0.0
        self._absent = Ranges()  # below `_next`, and may come late
        self._undeclared = Ranges()  # of these: told without a reason
        if start is not None:
            self._begin(start)

    def receive(self, message: Numbered, now_s: float) -> Iterator[Ordered]:
        """Yield what a message lets pass: nothing, itself, or itself and what was held for it."""
        seq = message.seq
        if self._next is None:
            self._begin(seq)
        assert self._next is not None
        if seq < self._next:
            if self._absent.remove(seq, seq):
                self._undeclared.remove(seq, seq)
                yield Late(message)
            return
        if seq in self._held:
            return
        self._held[seq] = message
        heapq.heappush(self._held_numbers, seq)
        if seq <= self._highest:
            self._filled_s = now_s
        self._reach(seq - 1, now_s)
        self._highest = max(self._highest, seq)
        yield from self.expire(now_s)

    def declare(self, gap: GapMessage, now_s: float) -> Iterator[Ordered]:
        """A gap that is not exact names numbers that may still come, so they wait."""
        if gap.to is None:
            yield Missing.of_account(self._key, gap.from_, None, reason=gap.reason)
            self._gaps.append(gap)
            return
        if self._next is None:
            self._begin(gap.from_)
        yield from self._name_afterwards(gap, gap.to)
        self._gaps.append(gap)
        self._filled_s = now_s
        self._reach(gap.from_ - 1, now_s)
        self._reach(gap.to, now_s)
        yield from self.expire(now_s)

    def expire(self, now_s: float) -> Iterator[Ordered]:
        """Yield what passes because the numbers before it have been waited for long enough, or too much is held."""
        while self._holes and max(self._holes[0][1], self._filled_s) + self._wait_s <= now_s:
            self._given_up = max(self._given_up, self._holes.popleft()[0])
        yield from self._pass_on()
        while len(self._held) > self._most_held:
            self._given_up = self._held_numbers[0] - 1
            yield from self._pass_on()

    def finish(self) -> Iterator[Ordered]:
        """Yield all that is held: nothing is waited for any more."""
        self._given_up = self._highest
        self._holes.clear()
        yield from self._pass_on()

    def _begin(self, start: int) -> None:
        self._next, self._highest = start, start - 1
        self._absent.add(1, start - 1)

    def _reach(self, last: int, now_s: float) -> None:
        if last > self._highest:
            self._holes.append((last, now_s))
            self._highest = last

    def _name_afterwards(self, gap: GapMessage, last: int) -> Iterator[Missing]:
        """Yield numbers that were reported as missing and have a reason now."""
        for low, high in list(self._undeclared):
            first_named, last_named = max(low, gap.from_), min(high, last)
            if first_named <= last_named:
                yield Missing.of_account(self._key, first_named, last_named, reason=gap.reason, is_exact=gap.exact)
        self._undeclared.remove(gap.from_, last)

    def _pass_on(self) -> Iterator[Ordered]:
        while self._next is not None and self._next <= self._highest:
            message = self._held.pop(self._next, None)
            if message is not None:
                heapq.heappop(self._held_numbers)
                self._next += 1
                yield message
                continue
            missing = self._missing_at(self._next)
            if missing is None:
                break
            assert missing.last is not None
            self._absent.add(self._next, missing.last)
            if missing.reason is None:
                self._undeclared.add(self._next, missing.last)
            self._next = missing.last + 1
            yield missing
        self._forget()

    def _missing_at(self, first: int) -> Missing | None:
        """Return the run of numbers from `first` on that need no more waiting, all of one reason."""
        last = self._held_numbers[0] - 1 if self._held_numbers else self._highest
        gaps = [gap for gap in self._gaps if gap.from_ <= first <= _end(gap)]
        gap = max(gaps, key=lambda one: one.exact, default=None)
        if gap is None or not gap.exact:
            if first > self._given_up:
                return None
            last = min(last, self._given_up)
            last = min([last, *(other.from_ - 1 for other in self._gaps if other.from_ > first)])
        if gap is None:
            return Missing.of_account(self._key, first, last)
        last = min(last, _end(gap))
        return Missing.of_account(self._key, first, last, reason=gap.reason, is_exact=gap.exact)

    def _forget(self) -> None:
        """Drop what speaks of numbers that were passed on."""
        if self._next is None:
            return
        while self._holes and self._holes[0][0] < self._next:
            self._holes.popleft()
        if self._gaps:
            self._gaps = [gap for gap in self._gaps if _end(gap) >= self._next]


def _end(gap: GapMessage) -> int:
    return _NO_END if gap.to is None else gap.to


@dataclass(slots=True)
class _Epoch:
    sequence: Sequence
    opened_s: float
    touched_s: float
    waiting: list[Ordered] = field(default_factory=list)  # in order, behind an older epoch


class _Starts:
    """Order of a device's epochs: by number, but one that comes online is the newest, whatever its number."""

    def __init__(self) -> None:
        self._rounds: dict[int, int] = {}

    def rank(self, epoch: int) -> tuple[int, int]:
        if epoch not in self._rounds:
            self._rounds[epoch] = max(self._rounds.values(), default=0)
        return self._rounds[epoch], epoch

    def online(self, epoch: int) -> None:
        rank, newest = self.rank(epoch), max(map(self.rank, self._rounds))
        if rank < newest:
            self._rounds[epoch] = newest[0] + 1


class _Stream:
    """The epochs of one stream's detections, or of its events."""

    def __init__(self, starts: _Starts, *, wait_s: float, most_held: int) -> None:
        self._rank = starts.rank
        self._wait_s = wait_s
        self._most_held = most_held
        self._epochs: dict[int, _Epoch] = {}
        self._current = 0

    def enter(self, key: AccountKey, message: NumberedMessage, now_s: float) -> Iterator[Ordered]:
        epoch = self._opened(key, now_s)
        epoch.touched_s = now_s
        if isinstance(message, GapMessage):
            ordered = epoch.sequence.declare(message, now_s)
        else:
            ordered = epoch.sequence.receive(message, now_s)
        yield from self._in_turn(key.epoch, ordered)
        yield from self.expire(now_s)

    def expire(self, now_s: float) -> Iterator[Ordered]:
        for number, epoch in list(self._epochs.items()):
            yield from self._in_turn(number, epoch.sequence.expire(now_s))
        while self._may_turn(now_s):
            yield from self._turn()

    def _opened(self, key: AccountKey, now_s: float) -> _Epoch:
        if key.epoch not in self._epochs:
            # A start that we have seen the one before of is counted from its first message.
            start = 1 if self._current and self._is_newer(key.epoch) else None
            sequence = Sequence(key, wait_s=self._wait_s, most_held=self._most_held, start=start)
            self._epochs[key.epoch] = _Epoch(sequence, now_s, now_s)
            self._current = self._current or key.epoch
        return self._epochs[key.epoch]

    def _in_turn(self, number: int, ordered: Iterator[Ordered]) -> Iterator[Ordered]:
        """Yield what comes of the current epoch; keep what comes of a newer one; mark what comes of an older one."""
        if self._is_newer(number):
            self._epochs[number].waiting += ordered
        elif number == self._current:
            yield from ordered
        else:
            yield from (item if isinstance(item, (Missing, Late)) else Late(item) for item in ordered)

    def _is_newer(self, epoch: int) -> bool:
        return self._rank(epoch) > self._rank(self._current)

    def _next_epoch(self) -> int | None:
        return min(filter(self._is_newer, self._epochs), key=self._rank, default=None)

    def _may_turn(self, now_s: float) -> bool:
        """Whether a newer epoch waits, and nothing of the current one has come for long enough, or too much waits."""
        number = self._next_epoch()
        if number is None:
            return False
        following = self._epochs[number]
        quiet_since_s = max(following.opened_s, self._epochs[self._current].touched_s)
        return quiet_since_s + self._wait_s <= now_s or len(following.waiting) > self._most_held

    def _turn(self) -> Iterator[Ordered]:
        yield from self._epochs[self._current].sequence.finish()
        self._current = self._next_epoch() or self._current
        following = self._epochs[self._current]
        waiting, following.waiting = following.waiting, []
        yield from waiting


class Resequencer:
    """Puts numbered messages and gap records of many devices in order; `wait_s` is how long a number is waited for.

    The wait begins anew whenever one of the account's missing numbers comes or is declared. `most_held` messages of an
    account may wait; with more, the lowest missing numbers are given up.
    """

    def __init__(self, *, wait_s: float, most_held: int) -> None:
        self._wait_s = wait_s
        self._most_held = most_held
        self._streams: dict[tuple[str, str, NumberedKind], _Stream] = {}
        self._starts: defaultdict[str, _Starts] = defaultdict(_Starts)

    def online(self, device: str, epoch: int) -> None:
        """Take an epoch for the device's newest from now on: that of a replaced board may be lower."""
        self._starts[device].online(epoch)

    def enter(self, message: NumberedMessage, now_s: float) -> Iterator[Ordered]:
        key = account_key(message)
        name = (key.device, key.stream, key.of)
        if name not in self._streams:
            self._streams[name] = _Stream(self._starts[key.device], wait_s=self._wait_s, most_held=self._most_held)
        yield from self._streams[name].enter(key, message, now_s)

    def expire(self, now_s: float) -> Iterator[Ordered]:
        for stream in self._streams.values():
            yield from stream.expire(now_s)
