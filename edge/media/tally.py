"""Sums of what sources have counted."""

from __future__ import annotations

from edge.types import SourceCounts

__all__ = ["add_counts"]


def add_counts(first: SourceCounts, second: SourceCounts) -> SourceCounts:
    """Return the sum of two counts, reason by reason."""
    reasons = {**first.dropped, **second.dropped}
    return SourceCounts(
        decoded=first.decoded + second.decoded,
        dropped={reason: first.dropped.get(reason, 0) + second.dropped.get(reason, 0) for reason in reasons},
        errors=first.errors + second.errors,
        skipped=first.skipped + second.skipped,
    )
