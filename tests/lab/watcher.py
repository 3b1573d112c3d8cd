"""The subscriber of the lab: what arrived of which release and when, what is missing, how long nothing came."""

import json
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass
from itertools import pairwise

from tests.support.collector import Collector
from tests.support.promise import Findings, findings


@dataclass(frozen=True)
class Arrived:
    """One detection message; `at_s` is the broker's host's monotonic clock."""

    at_s: float
    release: str | None
    epoch: int
    stream: str
    seq: int


class Watcher:
    """Watches everything that is published from the moment it is made; shares no code with the product."""

    def __init__(self, host: str, port: int) -> None:
        self._collector = Collector(port, host=host)

    def arrived(self) -> list[Arrived]:
        """Return the detections in order of arrival, with duplicates."""
        found = []
        for message in list(self._collector.messages):
            if message.topic.endswith("/detections"):
                values = json.loads(message.payload)
                release = (values.get("model") or {}).get("release")
                found.append(Arrived(message.timestamp, release, values["epoch"], values["stream"], values["seq"]))
        return found

    def count(self, release: str) -> int:
        """Return how many detections of a release have arrived."""
        return sum(one.release == release for one in self.arrived())

    def undeclared(self) -> dict[tuple[int, str], set[int]]:
        """Return the numbers that neither came nor were declared lost, by epoch and stream."""
        numbers: dict[tuple[int, str], set[int]] = defaultdict(set)
        for one in self.arrived():
            numbers[one.epoch, one.stream].add(one.seq)
        declared: dict[tuple[int, str], set[int]] = defaultdict(set)
        for gap in self._collector.payloads("/gaps"):
            key = gap["epoch"], gap["stream"]
            last = (
                max(numbers.get(key, ()), default=0) if gap["to"] is None else gap["to"]
            )  # a power cut leaves the end open
            declared[key] |= set(range(gap["from"], last + 1))
        missing = {key: set(range(min(seen), max(seen) + 1)) - seen - declared[key] for key, seen in numbers.items()}
        return {key: lost for key, lost in missing.items() if lost}

    def longest_silence_s(self, *, since: int = 0) -> float:
        """Return the longest time between two detections, from the `since`th on."""
        return max((b.at_s - a.at_s for a, b in pairwise(self.arrived()[since:])), default=0.0)

    def state(self) -> str | None:
        """Return the device's latest state: online, degraded, offline, ..."""
        told = self.states()
        return told[-1][0] if told else None

    def states(self) -> list[tuple[str, str | None]]:
        """Return all states of the device with their reasons."""
        states = self._collector.payloads("/state")
        return [(one["state"], one["reason"]) for one in states if one.get("schema", "").startswith("edge.state/")]

    def findings(self, epochs: Container[int]) -> Findings:
        """Return what all that came of these epochs says of the promise; events have accounts of their own."""
        messages = [(message.topic, message.payload) for message in list(self._collector.messages) if message.payload]
        kinds = ("/detections", "/replay", "/events", "/gaps")
        ours = [one for one in messages if one[0].endswith(kinds) and json.loads(one[1])["epoch"] in epochs]
        return findings(ours, may_be_open=True, has_events=True)

    def last_switch(self) -> dict[str, object]:
        """Return what the device has last published of a switch; empty: nothing."""
        told = self._collector.payloads("/deploy")
        return told[-1] if told else {}

    def close(self) -> None:
        """Stop watching."""
        self._collector.close()
