"""Options and result of a calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edge.calibrate.lint.facts import Finding
from edge.calibrate.observations import Observations
from edge.calibrate.table import CalibrationTable
from edge.calibrate.thresholds import Method
from edge.types import ModelSpec

__all__ = ["Calibration", "CalibrationHooks", "CalibrationOptions", "LibraryCalibrator", "MaxDrop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCalibrator:
    """A calibrator of the engine's own library (`edge.engine.kind.CalibratingKind`), and what it is set to."""

    name: str
    quantile: float | None = None
    cutoff: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxDrop:
    """The most that INT8 may lose: `amount` mAP points, or that percentage of what the float model reaches."""

    amount: float = 0.5
    is_relative: bool = False

    def points_of(self, float_: float) -> float:
        """Return it in mAP points (hundredths), where the float model reaches `float_`, 0 to 1."""
        return self.amount * float_ if self.is_relative else self.amount

    def __str__(self) -> str:
        return f"{self.amount:g} % of float's" if self.is_relative else f"{self.amount:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    """Options of a calibration."""

    model: Path
    images: Path | None  # folder; None: only what `histograms` have seen
    method: Method | None = None  # None: searched for each tensor
    # finds the ranges instead; with it there is no method, and no histogram
    calibrator: LibraryCalibrator | None = None
    labels: Path | None = None  # folder or file; with them it is mAP that is measured, and `max_drop` is a promise
    max_drop: MaxDrop = field(default_factory=MaxDrop)
    is_symmetric: bool = False  # a searched table has no centres (ADR 2), as those of single methods have none
    keep_float: tuple[str, ...] = ()  # nodes that stay in float whatever is found
    histograms: tuple[Path, ...] = ()  # of other images, to be merged
    max_batch: int = 1  # images on one canvas; changes nothing in the result, but for that of some calibrators
    is_skipping_undecodable: bool = False  # leave out files that cannot be decoded, instead of refusing them

    @property
    def is_searched(self) -> bool:
        return self.method is None and self.calibrator is None

    @property
    def is_centred(self) -> bool:
        return self.is_searched and not self.is_symmetric


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationHooks:
    """Progress: a stage with the number of its steps (about), and each step."""

    on_stage: Callable[[str, int], None] = lambda name, steps: None
    on_step: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Result of a calibration."""

    spec: ModelSpec
    table: CalibrationTable
    observations: Observations  # to be saved and merged with those of other images
    left_out: tuple[Path, ...]  # files that could not be decoded
    notes: tuple[str, ...]  # sentences about images that show the same; with a proof they are in its evidence
    int8_mac_share: float
    # at the outputs, after each step of the search; empty where nothing was searched
    errors: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)  # of each stage
    findings: tuple[Finding, ...] = ()  # what lint says of the table
