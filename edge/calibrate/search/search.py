"""The steps of the search, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edge.calibrate.search.choice import FloatLimits, Int8Choice, Layer, Measure, MeasuredChoice
from edge.calibrate.search.floats import filled_up, with_better_floats
from edge.calibrate.search.measurements import Measurements
from edge.calibrate.search.methods import best_group, best_method, other_method, tied_methods
from edge.calibrate.search.outliers import without_outliers
from edge.calibrate.search.ranges import with_better_ranges

__all__ = ["SearchResult", "search"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What came out, and what each step came to on all images, by its name.

    `tied` are `best` and others whose errors chance may have put behind it; somebody else has to decide between them.
    """

    best: MeasuredChoice
    tied: tuple[MeasuredChoice, ...]
    steps: Mapping[str, MeasuredChoice]
    measurements: Measurements
    steady: Measurements

    def settled_by(self, agreement: Callable[[Int8Choice], float]) -> SearchResult:
        """Return the same with that one of what is tied for the best that agrees most; of equals the first.

        Args:
            agreement: how well a choice does what the float model does, more is better; asked where there is a tie.
        """
        if len(self.tied) == 1:
            return self
        chosen = max(self.tied, key=lambda one: agreement(one.choice))
        steps = self.steps if chosen is self.best else {**self.steps, "method by agreement": chosen}
        return replace(self, best=chosen, tied=(chosen,), steps=steps)

    def widened(self, limits: FloatLimits) -> SearchResult:
        """Return what comes out when more may stay in float, as far as that seems to help."""
        for measurements in (self.measurements, self.steady):
            measurements.widen(limits)
        tried = self.steady.measured([self.best.choice, filled_up(self.steady, self.best.choice)])
        (better,) = self.measurements.measured([min(tried, key=lambda one: one.cost).choice])
        return replace(self, best=better, steps={**self.steps, f"up to {limits.total:.0%} in float": better})


def search(
    ranges: Mapping[str, Mapping[str, float]],
    layers: Sequence[Layer],
    measure: Measure,
    *,
    images: int,
    steady: Measure | None = None,
    floats: Mapping[str, str] | None = None,
    limits: FloatLimits | None = None,
) -> SearchResult:
    """Return the best choice that was found.

    Args:
        ranges: range by tensor and method; every tensor has every method.
        layers: those that can run in INT8, in the order of the model.
        measure: what a choice does to the outputs.
        images: how many there are to measure on.
        steady: another measure, of less noise, which tells what single layers gain in float; None: `measure`.
        floats: layers that stay in float whatever is found, and why.
        limits: how much may stay in float; what `floats` holds counts as well.
    """
    measurements = Measurements(ranges, layers, limits or FloatLimits(), measure, images)
    calm = measurements if steady is None else Measurements(ranges, layers, limits or FloatLimits(), steady, images)
    now, choices = Int8Choice(methods={}, floats=dict(floats or {})), {}
    for name, step in _STEPS.items():
        now = choices[name] = (
            _by_both(measurements, now, step(calm, now)) if step in _BY_LAYER else step(measurements, now)
        )
    steps = dict(zip(choices, measurements.measured(list(choices.values())), strict=True))
    best = steps[name]
    tied = tied_methods(measurements, best)
    return SearchResult(best=best, tied=tied, steps=steps, measurements=measurements, steady=calm)


def _by_both(measurements: Measurements, now: Int8Choice, then: Int8Choice) -> Int8Choice:
    """Return `then`, which another measure has found, or `now` if `measurements` is sure that it is worse."""
    before, after = measurements.measured([now, then])
    return now if before.is_surely_better_than(after) else then


_STEPS = {
    "one method": best_method,
    "outliers in float": without_outliers,
    "groups in float": best_group,
    "layers in float": with_better_floats,
    "ranges by tensor": with_better_ranges,
    "methods again": other_method,
}
_BY_LAYER = (without_outliers, with_better_floats)
