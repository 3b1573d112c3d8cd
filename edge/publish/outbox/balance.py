"""What became of all messages, and of the numbered ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from edge.publish.messages import GapReason

__all__ = ["Balance"]


@dataclass(slots=True)
class Balance:
    """Counts of an outbox since its start; of numbers: numbered = acknowledged + waiting + declared + lost."""

    accepted: int = 0
    delivered: int = 0
    superseded: int = 0
    let_go: int = 0
    resent: int = 0
    numbered: int = 0
    acknowledged: int = 0
    declared: int = 0
    lost: int = 0
    sent_again: int = 0
    by_reason: Counter[GapReason] = field(default_factory=Counter)

    def declare(self, reason: GapReason) -> None:
        """Count a number that a gap record names."""
        self.declared += 1
        self.by_reason[reason] += 1

    def lose_unnamed(self, count: int, reason: GapReason) -> None:
        """Count messages that are gone and in an open gap record, if anywhere; fewer than none: some came back."""
        self.declared += max(0, count)
        self.let_go += max(0, count)
        self.by_reason[reason] += max(0, count)
        self.numbered += max(0, -count)
        self.accepted += max(0, -count)

    def counts(self) -> Mapping[str, int]:
        """Return them by the names that the outbox tells."""
        return {
            "accepted": self.accepted - self.superseded,
            "delivered": self.delivered,
            "dropped": self.let_go,
            "superseded": self.superseded,
            "resent": self.resent,
            "numbered": self.numbered,
            "numbered_acknowledged": self.acknowledged,
            "numbered_waiting": self.numbered - self.acknowledged - self.declared - self.lost,
            "numbered_in_gaps": self.declared,
            "numbered_lost": self.lost,
            "numbered_sent_again": self.sent_again,
        }
