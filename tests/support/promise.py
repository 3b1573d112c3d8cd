"""Proves the promise of docs/mqtt.md from what a subscriber received. Written from that page, without code of ours.

Of all that came, in its order: each number of a stream and epoch was received or named by a gap record; an exact record
names nothing that came; duplicates are the same message; first deliveries are in order on each topic. Those that are
`recovered` are of a start that is over, and in an order of their own; all others stay in the common one.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

Account = tuple[str, int]


@dataclass
class Findings:
    """What a subscriber knows of each (stream, epoch), and what of it breaks the promise."""

    received: dict[Account, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    declared: dict[Account, set[int]] = field(default_factory=lambda: defaultdict(set))
    exactly: dict[Account, set[int]] = field(default_factory=lambda: defaultdict(set))
    open_from: dict[Account, int] = field(default_factory=dict)
    recovered: dict[Account, set[int]] = field(default_factory=lambda: defaultdict(set))
    broken: list[str] = field(default_factory=list)

    @property
    def duplicates(self) -> int:
        return sum(count - 1 for numbers in self.received.values() for count in numbers.values())

    def undeclared(self, account: Account, last: int) -> set[int]:
        told = min(last, self.open_from.get(account, last + 1) - 1)
        return set(range(1, told + 1)) - self.received[account].keys() - self.declared[account]

    def prove(
        self,
        published: Mapping[Account, int],
        *,
        most_duplicates: int,
        taken: Mapping[Account, AbstractSet[int]] = MappingProxyType({}),
    ) -> None:
        """Fail with all that is broken.

        Args:
            published: the last number of each account.
            most_duplicates: how many may have come twice.
            taken: numbers that a broker had acknowledged before it was killed; they need not have come.
        """
        broken = list(self.broken)
        for account, last in published.items():
            if missing := self.undeclared(account, last) - taken.get(account, set()):
                broken.append(f"{account}: undeclared {sorted(missing)[:20]} of {last}")
            if beyond := [seq for seq in self.received[account] if seq > last]:
                broken.append(f"{account}: never published {beyond[:20]}")
            if both := self.exactly[account] & self.received[account].keys():
                broken.append(f"{account}: exactly lost, and received {sorted(both)[:20]}")
        newest = max((epoch for _, epoch in published), default=0)
        if own := [account for account in self.recovered if account[1] >= newest]:
            broken.append(f"recovered, and no later start is there that could have found them: {own}")
        if strangers := ({*self.received, *self.declared, *self.open_from}) - published.keys():
            broken.append(f"accounts that nobody opened: {strangers}")
        if self.duplicates > most_duplicates:
            broken.append(f"{self.duplicates} duplicates, at most {most_duplicates} were promised")
        assert not broken, "\n".join(broken)


class Reading:
    """Reads messages in the order of their arrival, and keeps of each no more than what it is held against.

    `may_be_open`: a gap record without an end declares all from its beginning on, as far as they have not come.
    `has_events`: events have accounts, too.
    """

    def __init__(self, *, may_be_open: bool = False, has_events: bool = False) -> None:
        self._may_be_open = may_be_open
        self._kinds = ("detections", "replay", "events") if has_events else ("detections", "replay")
        self.found = Findings()
        self._wording: dict[tuple[Account, int], bytes] = {}
        self._highest: dict[tuple[str, int, bool], int] = defaultdict(int)

    def enter(self, topic: str, payload: bytes) -> dict[str, Any] | None:
        """Return the message if it is one with a number, or None."""
        kind = topic.rpartition("/")[2]
        if kind == "gaps":
            _enter_gap(self.found, json.loads(payload), may_be_open=self._may_be_open)
        if kind not in self._kinds:
            return None
        one = json.loads(payload)
        name = f"{one['stream']} events" if kind == "events" else one["stream"]
        account, seq = (name, one["epoch"]), one["seq"]
        if one.pop("replayed", False) != (kind == "replay"):
            self.found.broken.append(f"{topic} {seq}: `replayed` does not fit the topic")
        is_recovered = one.pop("recovered", False)
        wording = hashlib.blake2b(json.dumps(one, sort_keys=True).encode(), digest_size=16).digest()
        if self._wording.setdefault((account, seq), wording) != wording:
            self.found.broken.append(f"{account} {seq}: came in two wordings")
        if not self.found.received[account][seq]:
            last = self._highest[topic, one["epoch"], is_recovered]
            if seq < last:
                self.found.broken.append(f"{topic} {seq}: first came after {last}")
            self._highest[topic, one["epoch"], is_recovered] = max(seq, last)
        if is_recovered:
            self.found.recovered[account].add(seq)
        self.found.received[account][seq] += 1
        return one


def findings(messages: Iterable[tuple[str, bytes]], *, may_be_open: bool = False, has_events: bool = False) -> Findings:
    """Read topics and payloads in the order of their arrival; the options are those of `Reading`."""
    reading = Reading(may_be_open=may_be_open, has_events=has_events)
    for topic, payload in messages:
        reading.enter(topic, payload)
    return reading.found


def _enter_gap(found: Findings, gap: dict[str, Any], *, may_be_open: bool) -> None:
    account = (gap["stream"] if gap["of"] == "detections" else f"{gap['stream']} {gap['of']}", gap["epoch"])
    if gap["to"] is None:
        assert may_be_open, f"an open gap has to be judged by its test: {gap}"
        assert not gap["exact"], f"an open gap cannot be exact: {gap}"
        found.open_from[account] = min(gap["from"], found.open_from.get(account, gap["from"]))
        return
    numbers = set(range(gap["from"], gap["to"] + 1))
    found.declared[account] |= numbers
    if gap["exact"]:
        found.exactly[account] |= numbers
        if gap["count"] != len(numbers):
            found.broken.append(f"an exact gap counts wrongly: {gap}")
