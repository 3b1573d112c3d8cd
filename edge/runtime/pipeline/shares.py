"""Fair shares by priority, where not every frame can be inferred. Pure: no clock, no threads; not thread-safe.

From batch to batch: whose turn it is.

From window to window: frame rates are capped step by step. A step down limits them to what can be served, fairly; a
step up raises or lifts these caps. The former takes a few windows in a row in which frames are lost, the latter a few
in which none are and what is wanted would fit. Who has to take a step up back waits twice as long before the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from edge.types import Counted, StreamId

__all__ = ["FEW", "TOO_MUCH", "FairShares", "FrameCounts", "Ladder", "Terms", "fair_caps"]

_CREDIT = 2  # frames of a stream of priority 1

TOO_MUCH, FEW = 0.10, 0.03
"""Shares of the wanted frames that are lost; in between it stays as it is."""

_DOWN, _UP = 2, 3  # windows in a row
_FITS = 0.85  # of what the engine could do, so that a step up does not end in the next step down
_SERVED = 0.97  # of what was inferred when frames were lost: a cap at the very edge would lose some
_SPARE = 1.15  # times as high as one of the caps: then they are worth to be raised
_LONGEST = 64  # windows without a step up
_FAILED_SOON = 6  # windows; overload that comes later is another one


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
        """Record that each of these was given a row, once for each row, in a batch."""
        standings = []
        for stream in streams:
            standings.append(self.standing(stream))
            self._given[stream] = standings[-1] + self._cost(stream)
        self._floor = max(self._floor, min(standings, default=0.0))

    def miss(self, stream: StreamId) -> None:
        """Record that a frame of a stream was lost because its next one came before its turn."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameCounts(Counted):
    """Frames of a stream: inferred, lost, and shed (capped or skipped); without those that its own `max_fps` drops.

    What was left out on purpose is wanted and not lost.
    """

    inferred: int = 0
    lost: int = 0
    shed: int = 0

    def since(self, before: FrameCounts) -> FrameCounts:
        return FrameCounts(
            inferred=self.inferred - before.inferred, lost=self.lost - before.lost, shed=self.shed - before.shed
        )

    def up_to(self, most: float) -> FrameCounts:
        """Return them without what is above `most` in all: the stream's own limit would have let that go."""
        lost = min(self.lost, max(0, round(most) - self.inferred))
        return replace(self, lost=lost, shed=min(self.shed, max(0, round(most) - self.inferred - lost)))

    @property
    def wanted(self) -> int:
        return self.inferred + self.lost + self.shed


class Ladder:
    """Judges windows of equal length, one after the other; `caps`: frames per second of streams that are limited."""

    def __init__(self) -> None:
        self.caps: Mapping[StreamId, float] = {}
        self._over = self._calm = self._inferred_over = 0
        self._hold, self._since_up = _UP, _FAILED_SOON

    def judge(
        self,
        loads: Mapping[StreamId, FrameCounts],
        terms: Mapping[StreamId, Terms],
        *,
        window_s: float,
        capacity_fps: float,
    ) -> bool:
        """Take in a window of the live streams; return whether something else is left out from now on.
        `capacity_fps`: frames that the engine could have inferred per second, had it always been at work.
        """
        inferred, lost = sum(one.inferred for one in loads.values()), sum(one.lost for one in loads.values())
        share = lost / max(1, inferred + lost)
        self._since_up += 1
        self._over = self._over + 1 if share > TOO_MUCH else 0
        # Of all windows that led to a step: one alone may have missed a batch that ended just behind it.
        self._inferred_over = self._inferred_over + inferred if self._over > 1 else inferred
        wanted_fps = {stream: one.wanted / window_s for stream, one in loads.items() if one.wanted}
        step_up = self._step_up(wanted_fps, terms, capacity_fps) if share <= FEW else None
        self._calm = self._calm + 1 if step_up is not None else 0
        # While no batch has ended the served rate is unknown: an engine that needs longer than a window is waited for.
        if self._over >= _DOWN and self._inferred_over:
            served_fps = self._inferred_over / (self._over * window_s)
            return self._go_down(wanted_fps, terms, served_fps=served_fps)
        if step_up is None or self._calm < self._hold:
            return False
        self.caps = step_up
        self._over = self._calm = self._since_up = 0
        return True

    def make_room(
        self,
        loads: Mapping[StreamId, FrameCounts],
        terms: Mapping[StreamId, Terms],
        *,
        window_s: float,
        left_fps: float,
    ) -> bool:
        """Cap what is wanted to `left_fps` in all; no cap is raised. Return whether something else is left out."""
        wanted_fps = {stream: one.wanted / window_s for stream, one in loads.items() if one.wanted}
        lower = fair_caps(wanted_fps, terms, total_fps=left_fps)
        before = self.caps
        self.caps = {**before, **{stream: min(fps, before.get(stream, fps)) for stream, fps in lower.items()}}
        self._over = self._calm = 0
        return before != self.caps

    def _go_down(
        self, wanted_fps: Mapping[StreamId, float], terms: Mapping[StreamId, Terms], *, served_fps: float
    ) -> bool:
        self._over = self._calm = 0
        caps = fair_caps(wanted_fps, terms, total_fps=_SERVED * served_fps)
        if not caps:  # what is wanted now is less than what was served: no cap would leave anything out
            return False
        if self._since_up < _FAILED_SOON:
            self._hold = min(_LONGEST, 2 * self._hold)
        elif not self.caps:
            self._hold = _UP
        self._since_up = _FAILED_SOON
        before, self.caps = self.caps, caps
        return before != caps

    def _step_up(
        self, wanted_fps: Mapping[StreamId, float], terms: Mapping[StreamId, Terms], capacity_fps: float
    ) -> Mapping[StreamId, float] | None:
        """Return caps that would let more through, higher ones or none at all."""
        if not self.caps:
            return None
        if sum(wanted_fps.values()) <= _FITS * capacity_fps:
            return {}
        # At least what goes through now, shared anew: a stream that gave few frames when caps were set has none since.
        now_fps = sum(min(fps, self.caps.get(stream, fps)) for stream, fps in wanted_fps.items())
        caps = fair_caps(wanted_fps, terms, total_fps=max(now_fps, _FITS * capacity_fps))
        capped = self.caps.keys() & wanted_fps.keys()
        is_worth = any(caps.get(stream, wanted_fps[stream]) >= _SPARE * self.caps[stream] for stream in capped)
        return caps if is_worth else None


def fair_caps(
    wanted_fps: Mapping[StreamId, float], terms: Mapping[StreamId, Terms], *, total_fps: float
) -> dict[StreamId, float]:
    """Return frames per second of those streams that cannot have all that they want.

    What there is goes to all in proportion to their priorities; what one does not want goes to the others (max-min).
    """
    left_fps, still = total_fps, dict(wanted_fps)
    while still:
        weights = {stream: terms.get(stream, Terms()).priority for stream in still}
        level = left_fps / sum(weights.values())
        content = [stream for stream in still if still[stream] <= level * weights[stream]]
        if not content:
            return {stream: level * weights[stream] for stream in still}
        for stream in content:
            left_fps -= still.pop(stream)
    return {}
