"""Whose turn it is, where not every frame can be inferred: fair shares by priority. Pure; not thread-safe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edge.types import StreamId

__all__ = ["FairShares", "Terms"]


_CREDIT = 2  # frames of a stream of priority 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms of a stream: its share is in proportion to `priority`, and it wants no more than `max_fps`.

    No frame of it is inferred when it is older than `max_age_ns`; None: however old it is.
    """

    priority: int = 1
    max_age_ns: int | None = None
    max_fps: float | None = None


class FairShares:
    """Counts what each stream was given, in frames / priority: who was given least comes first.

    A stream that did not want its share gets no more than a few frames of it later: when it comes back, it stands
    little before those that were served meanwhile. No stream starves, whatever the others' priorities.

    Source: start-time fair queueing (Goyal, Vin, Cheng, 1996), with a credit for frames that came at the wrong moment.
    """

    def __init__(self, terms: Mapping[StreamId, Terms]) -> None:
        self._terms = dict(terms)
        self._given: dict[StreamId, float] = {}
        self._floor = 0.0
        self._missed: dict[StreamId, int] = {}

    @property
    def terms(self) -> Mapping[StreamId, Terms]:
        """Those of streams that have other ones than most; a copy."""
        return dict(self._terms)

    def set_terms(self, stream: StreamId, terms: Terms) -> None:
        self._terms[stream] = terms

    def standing(self, stream: StreamId, *, pending: int = 0) -> float:
        """Return what a stream was given, with `pending` rows more; less comes first."""
        return max(self._given.get(stream, 0.0), self._floor - _CREDIT) + pending * self._cost(stream)

    def give(self, streams: Iterable[StreamId]) -> None:
        """Take note that each of these was given a row, once for each row, in a batch."""
        standings = []
        for stream in streams:
            standings.append(self.standing(stream))
            self._given[stream] = standings[-1] + self._cost(stream)
        self._floor = max(self._floor, min(standings, default=0.0))

    def miss(self, stream: StreamId) -> None:
        """Take note that a frame of a stream was lost because its next one came before its turn."""
        self._missed[stream] = min(_CREDIT, self._missed.get(stream, 0) + 1)

    def may_take(self, stream: StreamId, other: StreamId) -> bool:
        """Return whether a stream may take a row from another, and reckon with it that it does.

        Only one that has missed a turn, and credit does not count: while the machine serves all, waiting loses nothing.
        """
        has_more = self.standing(other) > max(self.standing(stream), self._floor)
        if not has_more or not self._missed.get(stream):
            return False
        self._missed[stream] -= 1
        return True

    def _cost(self, stream: StreamId) -> float:
        return 1.0 / self._terms.get(stream, Terms()).priority
