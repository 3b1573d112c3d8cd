"""What a calibration is asked for, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edge.calibrate.lint.finding import Finding
from edge.calibrate.observations import Observations
from edge.calibrate.table import CalibrationTable
from edge.calibrate.thresholds.method import Method
from edge.model.inspect import ModelOverrides
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
    """What to calibrate, and how.

    Attributes:
        images: folder; None: only what `histograms` have seen.
        method: None: searched for each tensor.
        calibrator: finds the ranges instead; with it there is no method, and no histogram.
        labels: folder or file; with them it is mAP that is measured, and `max_drop` is a promise.
        is_symmetric: a searched table has no centres (ADR 16), as those of single methods have none.
        keep_float: nodes that stay in float whatever is found.
        histograms: of other images, to be merged.
        max_batch: images on one canvas; changes nothing in the result, but for that of some calibrators.
        is_skipping_undecodable: leave out files that cannot be decoded, instead of refusing them.
    """

    model: Path
    images: Path | None
    method: Method | None = None
    calibrator: LibraryCalibrator | None = None
    labels: Path | None = None
    max_drop: MaxDrop = field(default_factory=MaxDrop)
    is_symmetric: bool = False
    keep_float: tuple[str, ...] = ()
    histograms: tuple[Path, ...] = ()
    max_batch: int = 1
    is_skipping_undecodable: bool = False
    overrides: ModelOverrides | None = None

    @property
    def is_searched(self) -> bool:
        """Whether the method is searched for each tensor."""
        return self.method is None and self.calibrator is None

    @property
    def is_centred(self) -> bool:
        """Whether activations are quantized around centres."""
        return self.is_searched and not self.is_symmetric


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationHooks:
    """What is told meanwhile: a stage with the number of its steps (about), and each step."""

    on_stage: Callable[[str, int], None] = lambda name, steps: None
    on_step: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What came out.

    Attributes:
        observations: to be saved and merged with those of other images.
        left_out: files that could not be decoded.
        errors: at the outputs, after each step of the search; empty where nothing was searched.
        seconds: of each stage.
        findings: what lint says of the table.
    """

    spec: ModelSpec
    table: CalibrationTable
    observations: Observations
    left_out: tuple[Path, ...]
    int8_mac_share: float
    errors: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
