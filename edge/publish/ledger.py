"""A consumer's accounts: which numbers came, which came twice, which are missing, which were declared lost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from edge.publish.messages import DetectionsMessage, EventMessage, GapMessage, NumberedKind

__all__ = ["Account", "AccountKey", "Ledger", "NumberedMessage", "Ranges", "account_key"]

NumberedMessage: TypeAlias = DetectionsMessage | EventMessage | GapMessage


@dataclass(frozen=True, slots=True, order=True)
class AccountKey:
    """Owner of a sequence of numbers."""

    device: str
    stream: str
    epoch: int
    of: NumberedKind = "detections"

    def __str__(self) -> str:
        return f"{self.device}/{self.stream}{' events' if self.of == 'events' else ''} epoch {self.epoch}"


class Ranges:
    """A set of positive integers kept as ranges, disjoint, sorted, never touching; both ends belong to a range."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._first, self._last, strict=True))

    @property
    def total(self) -> int:
        return sum(self._last) - sum(self._first) + len(self._first)

    def add(self, first: int, last: int) -> None:
        """Nothing when that is empty."""
        if first > last:
            return
        low = bisect_right(self._last, first - 2)
        high = bisect_right(self._first, last + 1)
        if low < high:
            first = min(first, self._first[low])
            last = max(last, self._last[high - 1])
        self._first[low:high] = [first]
        self._last[low:high] = [last]

    def remove(self, first: int, last: int) -> int:
        """Return how many of them were in; nothing happens when the range is empty."""
        if first > last:
            return 0
        before = self.total
        low = bisect_right(self._last, first - 1)
        high = bisect_right(self._first, last)
        if low >= high:
            return 0
        pieces = [(self._first[low], first - 1), (last + 1, self._last[high - 1])]
        kept = [piece for piece in pieces if piece[0] <= piece[1]]
        self._first[low:high] = [piece[0] for piece in kept]
        self._last[low:high] = [piece[1] for piece in kept]
        return before - self.total


@dataclass(slots=True)
class Account:
    """Numbers from the first that was seen to the highest: each is received, declared or missing."""

    first: int
    highest: int = 0
    received: int = 0
    duplicates: int = 0
    missing: Ranges = field(default_factory=Ranges)
    declared: Ranges = field(default_factory=Ranges)

    def __post_init__(self) -> None:
        self.highest = self.first - 1

    def receive(self, seq: int) -> None:
        if seq < self.first:
            return
        self._reach(seq)
        if self.missing.remove(seq, seq) or self.declared.remove(seq, seq):
            self.received += 1
        else:
            self.duplicates += 1

    def declare(self, first: int, last: int) -> None:
        """A number that was received stays received."""
        self._reach(last)
        for low, high in list(self.missing):
            self.declared.add(max(low, first), min(high, last))
        self.missing.remove(first, last)

    def _reach(self, seq: int) -> None:
        """Take all numbers up to `seq` for missing until something is known of them."""
        self.missing.add(self.highest + 1, seq)
        self.highest = max(self.highest, seq)


class Ledger:
    """Accounts by (device, stream, epoch), of detections and of events. What came before the first is not missed."""

    def __init__(self) -> None:
        self.accounts: dict[AccountKey, Account] = {}

    @property
    def missing(self) -> int:
        return sum(account.missing.total for account in self.accounts.values())

    def enter(self, message: NumberedMessage) -> Account:
        key = account_key(message)
        if not isinstance(message, GapMessage):
            account = self.accounts.setdefault(key, Account(message.seq))
            account.receive(message.seq)
            return account
        account = self.accounts.setdefault(key, Account(message.from_))
        if message.to is not None:
            account.declare(message.from_, message.to)
        return account


def account_key(message: NumberedMessage) -> AccountKey:
    return AccountKey(message.device, message.stream, message.epoch, message.of)
