"""A consumer's accounts: which numbers came, which came twice, which are missing, which were declared lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from edge.publish.messages import DetectionsMessage, EventMessage, GapMessage, NumberedKind
from edge.publish.ranges import Ranges

__all__ = ["Account", "AccountKey", "Ledger", "NumberedMessage", "account_key"]

NumberedMessage: TypeAlias = DetectionsMessage | EventMessage | GapMessage


@dataclass(frozen=True, slots=True, order=True)
class AccountKey:
    """What has its own sequence of numbers."""

    device: str
    stream: str
    epoch: int
    of: NumberedKind = "detections"

    def __str__(self) -> str:
        return f"{self.device}/{self.stream}{' events' if self.of == 'events' else ''} epoch {self.epoch}"


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
        """Enter a message."""
        if seq < self.first:
            return
        self._reach(seq)
        if self.missing.remove(seq, seq) or self.declared.remove(seq, seq):
            self.received += 1
        else:
            self.duplicates += 1

    def declare(self, first: int, last: int) -> None:
        """Enter a gap record; a number that was received stays received."""
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
        """Numbers that neither came nor were declared."""
        return sum(account.missing.total for account in self.accounts.values())

    def enter(self, message: NumberedMessage) -> Account:
        """Enter a message and return the account that it belongs to."""
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
    """Return which account a message belongs to."""
    match message:
        case GapMessage():
            of = message.of
        case EventMessage():
            of = "events"
        case DetectionsMessage():
            of = "detections"
    return AccountKey(message.device, message.stream, message.epoch, of)
