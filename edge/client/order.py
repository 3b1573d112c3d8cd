"""Order over all accounts: each stream's epochs one after the other, and in each the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from edge.client.items import Late, Missing, Ordered
from edge.client.sequence import Sequence
from edge.publish.ledger import AccountKey, NumberedMessage, account_key
from edge.publish.messages import GapMessage, NumberedKind

__all__ = ["Resequencer"]


@dataclass(slots=True)
class _Epoch:
    sequence: Sequence
    opened_s: float
    touched_s: float
    waiting: list[Ordered] = field(default_factory=list)  # in order, behind an older epoch


class _Stream:
    """The epochs of one stream's detections, or of its events."""

    def __init__(self, *, wait_s: float, most_held: int) -> None:
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
            start = 1 if self._current and key.epoch > self._current else None
            sequence = Sequence(key, wait_s=self._wait_s, most_held=self._most_held, start=start)
            self._epochs[key.epoch] = _Epoch(sequence, now_s, now_s)
            self._current = self._current or key.epoch
        return self._epochs[key.epoch]

    def _in_turn(self, number: int, ordered: Iterator[Ordered]) -> Iterator[Ordered]:
        """Yield what comes of the current epoch; keep what comes of a newer one; mark what comes of an older one."""
        if number > self._current:
            self._epochs[number].waiting += ordered
        elif number == self._current:
            yield from ordered
        else:
            yield from (item if isinstance(item, (Missing, Late)) else Late(item) for item in ordered)

    def _next_epoch(self) -> int | None:
        return min((number for number in self._epochs if number > self._current), default=None)

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

    def enter(self, message: NumberedMessage, now_s: float) -> Iterator[Ordered]:
        """Yield what a message or a gap record lets pass."""
        key = account_key(message)
        name = (key.device, key.stream, key.of)
        if name not in self._streams:
            self._streams[name] = _Stream(wait_s=self._wait_s, most_held=self._most_held)
        yield from self._streams[name].enter(key, message, now_s)

    def expire(self, now_s: float) -> Iterator[Ordered]:
        """Yield what passes because time has."""
        for stream in self._streams.values():
            yield from stream.expire(now_s)
