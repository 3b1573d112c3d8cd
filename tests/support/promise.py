"""Proves the promise of docs/mqtt.md from what a subscriber received. Written from that page, without code of ours.

Of all that came, in its order: each number of a stream and epoch was received or named by a gap record; an exact record
names nothing that came; duplicates are the same message; first deliveries are in order on each topic.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Account = tuple[str, int]


@dataclass
class Findings:
    """What a subscriber knows of each (stream, epoch), and what of it breaks the promise."""

    received: dict[Account, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    declared: dict[Account, set[int]] = field(default_factory=lambda: defaultdict(set))
    exactly: dict[Account, set[int]] = field(default_factory=lambda: defaultdict(set))
    broken: list[str] = field(default_factory=list)

    @property
    def duplicates(self) -> int:
        return sum(count - 1 for numbers in self.received.values() for count in numbers.values())

    def undeclared(self, account: Account, last: int) -> set[int]:
        return set(range(1, last + 1)) - self.received[account].keys() - self.declared[account]

    def prove(self, published: Mapping[Account, int], *, most_duplicates: int) -> None:
        """Fail with all that is broken; `published` is the last number of each account."""
        broken = list(self.broken)
        for account, last in published.items():
            if missing := self.undeclared(account, last):
                broken.append(f"{account}: undeclared {sorted(missing)[:20]} of {last}")
            if beyond := [seq for seq in self.received[account] if seq > last]:
                broken.append(f"{account}: never published {beyond[:20]}")
            if both := self.exactly[account] & self.received[account].keys():
                broken.append(f"{account}: exactly lost, and received {sorted(both)[:20]}")
        if strangers := (self.received.keys() | self.declared.keys()) - published.keys():
            broken.append(f"accounts that nobody opened: {strangers}")
        if self.duplicates > most_duplicates:
            broken.append(f"{self.duplicates} duplicates, at most {most_duplicates} were promised")
        assert not broken, "\n".join(broken)


def findings(messages: Iterable[tuple[str, bytes]]) -> Findings:
    """Read topics and payloads in the order of their arrival."""
    found = Findings()
    wording: dict[tuple[Account, int], dict[str, Any]] = {}
    highest: dict[tuple[str, int], int] = defaultdict(int)
    for topic, payload in messages:
        kind = topic.rpartition("/")[2]
        if kind == "gaps":
            _enter_gap(found, json.loads(payload))
        if kind not in ("detections", "replay"):
            continue
        one = json.loads(payload)
        account, seq = (one["stream"], one["epoch"]), one["seq"]
        if one.pop("replayed") != (kind == "replay"):
            found.broken.append(f"{topic} {seq}: `replayed` does not fit the topic")
        if wording.setdefault((account, seq), one) != one:
            found.broken.append(f"{account} {seq}: came in two wordings")
        if not found.received[account][seq]:
            if seq < highest[topic, one["epoch"]]:
                found.broken.append(f"{topic} {seq}: first came after {highest[topic, one['epoch']]}")
            highest[topic, one["epoch"]] = max(seq, highest[topic, one["epoch"]])
        found.received[account][seq] += 1
    return found


def _enter_gap(found: Findings, gap: dict[str, Any]) -> None:
    account = (gap["stream"] if gap["of"] == "detections" else f"{gap['stream']} {gap['of']}", gap["epoch"])
    if gap["to"] is None:
        raise AssertionError(f"an open gap has to be judged by its test: {gap}")
    numbers = set(range(gap["from"], gap["to"] + 1))
    found.declared[account] |= numbers
    if gap["exact"]:
        found.exactly[account] |= numbers
        if gap["count"] != len(numbers):
            found.broken.append(f"an exact gap counts wrongly: {gap}")
