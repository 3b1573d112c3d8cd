"""A machine as it was measured: peaks of arithmetic, and how fast working sets of different sizes move.

A layer of a small model fits in a cache, and moves faster than memory allows: so its bound is the bandwidth of a
working set that is no larger than what it moves (docs/adr/0039).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edge.types import Precision

__all__ = ["THIS", "MeasuredMachine", "MemoryLevel", "Rate", "WorkingSet"]

THIS = "this"
_SAME_STEP = 0.75  # a working set that moves at this part of the rate of a step, or faster, belongs to it
_BUSY_SHARE = 0.95  # of the processor, in the fastest runs
_UNSURE_SPREAD = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What was reached in each round of measuring, per second."""

    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The highest: whatever disturbs a round makes it lower."""
        return max(self.rounds)

    @property
    def spread(self) -> float:
        """How far the second best lies below the best, 0 to 1; 1 where there was but one round."""
        if len(self.rounds) == 1:
            return 1.0
        best, second = sorted(self.rounds)[:-3:-1]
        return 1 - second / best

    def with_rounds_of(self, other: Rate) -> Rate:
        """Return what both have reached."""
        return Rate(rounds=self.rounds + other.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingSet:
    """Bytes that are read, or read and written, again and again; each read and each write of one counts."""

    size_bytes: int
    rate: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """Working sets of up to so many bytes that move at much the same rate: a cache; the last one is the memory."""

    up_to_bytes: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMachine:
    """This machine: its processor on some of its cores, or its GPU.

    Attributes:
        processor: its name.
        cores: that were used; `all_cores`: that there are.
        engine: that computed, and its version.
        peaks: operations per second by precision.
        why_no: why there is no peak of another precision.
        sets: smallest first.
        cpu_share: part of the cores' time that the fastest runs had; below 1 peaks are too low.
        extent: of what was measured, for people; None: its cores.
        peaks_of: what was computed for the peaks.
    """

    processor: str
    cores: int
    all_cores: int
    engine: str
    peaks: Mapping[Precision, Rate]
    sets: Sequence[WorkingSet]
    cpu_share: float
    why_no: Mapping[Precision, str] = field(default_factory=dict)
    extent: str | None = None
    peaks_of: str = "convolutions"

    @property
    def called(self) -> str:
        """Its name as `--machine` takes it."""
        return THIS if self.cores == self.all_cores else f"{THIS}/{self.cores}"

    @property
    def title(self) -> str:
        """Its name for people."""
        return f"{self.processor}, {self.extent or f'{self.cores} of {self.all_cores} cores'}, measured"

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth of the largest working set: of the memory, beyond all caches."""
        return self.sets[-1].rate.best

    @property
    def l2_bytes(self) -> None:
        """Caches are in the bandwidths: how large they are is not asked."""
        return None

    def peak(self, precision: Precision) -> float | None:
        """Return operations per second; None where they could not be measured."""
        return self.peaks[precision].best if precision in self.peaks else None

    def ridge(self, precision: Precision) -> float | None:
        """Return the operations per byte from which on compute is the bound, whatever the caches hold."""
        peak = self.peak(precision)
        return None if peak is None else peak / self.bytes_per_s

    def bandwidth(self, moved_bytes: float) -> float:
        """Return at most how fast so many bytes move: as the largest working set that is not larger, or any beyond."""
        return self._rate(moved_bytes).best

    def move_s(self, moved_bytes: float) -> float:
        """Return the least seconds in which so many bytes move."""
        return moved_bytes / self.bandwidth(moved_bytes)

    def _rate(self, moved_bytes: float) -> Rate:
        no_larger = sum(1 for one in self.sets if one.size_bytes <= moved_bytes)
        return max((one.rate for one in self.sets[max(no_larger - 1, 0) :]), key=lambda rate: rate.best)

    @property
    def steps(self) -> tuple[MemoryLevel, ...]:
        """The bandwidths as a few steps, fastest first; what the caches are, as far as it can be seen from outside."""
        found: list[MemoryLevel] = []
        for one in self.sets:
            rate = self.bandwidth(one.size_bytes)
            if found and rate >= _SAME_STEP * found[-1].bytes_per_s:
                found[-1] = replace(found[-1], up_to_bytes=one.size_bytes)
            else:
                found.append(MemoryLevel(up_to_bytes=one.size_bytes, bytes_per_s=rate))
        return tuple(found)

    @property
    def noise(self) -> float:
        """The largest spread among the peaks and bandwidths that bound layers: so far one may lie above its roof."""
        return max(rate.spread for rate in (*self.peaks.values(), *(self._rate(one.size_bytes) for one in self.sets)))

    def spread_of(self, precision: Precision, moved_bytes: float) -> float:
        """Return the spread of what bounds a layer: of its peak and its bandwidth the larger one."""
        peak = self.peaks[precision].spread if precision in self.peaks else 0.0
        return max(peak, self._rate(moved_bytes).spread)

    @property
    def doubt(self) -> str | None:
        """What makes the peaks doubtful; None: nothing."""
        if self.cpu_share < _BUSY_SHARE:
            return (
                f"the machine was busy: even the fastest runs had {self.cpu_share:.0%} of the time of its cores. Peaks "
                "and bandwidths are too low then"
            )
        if self.noise > _UNSURE_SPREAD:
            return (
                f"the machine was not quiet: the two best rounds of a measurement differ by up to {self.noise:.0%}. "
                "Peaks and bandwidths may be too low by that"
            )
        return None

    def with_rounds_of(self, other: MeasuredMachine) -> MeasuredMachine:
        """Return the machine by the rounds of both measurements, of the same working sets."""
        return replace(
            self,
            peaks={kind: rate.with_rounds_of(other.peaks[kind]) for kind, rate in self.peaks.items()},
            sets=tuple(
                WorkingSet(size_bytes=mine.size_bytes, rate=mine.rate.with_rounds_of(its.rate))
                for mine, its in zip(self.sets, other.sets, strict=True)
            ),
            cpu_share=max(self.cpu_share, other.cpu_share),
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        return {
            "machine": self.called,
            "name": self.title,
            "engine": self.engine,
            "cores": self.cores,
            "peaks_per_s": {kind.value: self.peak(kind) for kind in Precision},
            "bytes_per_s": self.bytes_per_s,
            "ridge": {kind.value: self.ridge(kind) for kind in Precision},
            "bandwidths": [
                {"working_set_bytes": one.size_bytes, "bytes_per_s": one.rate.best, "spread": round(one.rate.spread, 4)}
                for one in self.sets
            ],
            "peak_spread": {kind.value: round(rate.spread, 4) for kind, rate in self.peaks.items()},
            "cpu_share": round(self.cpu_share, 4),
            "doubt": self.doubt,
        }
