"""The steps of the search, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edge.calibrate.measurements import (
    ChoiceKey,
    FloatLimits,
    Int8Choice,
    Layer,
    Measure,
    MeasuredChoice,
    Measurements,
    worth,
)

__all__ = ["SearchResult", "search"]

_FINALISTS = 3


def best_method(measurements: Measurements, now: Int8Choice) -> Int8Choice:
    """Return the best choice that has one method for all tensors, with the float layers of `now`."""
    return _cheapest(measurements, list(_with_each_method(measurements, now)))


def best_group(measurements: Measurements, now: Int8Choice) -> Int8Choice:
    """Return the best choice of a method for all tensors and a group of layers in float, if better than `now`."""
    groups = {
        "one of the last layers": _last_layers(measurements, now),
        "depthwise": [layer for layer in measurements.layers if layer.is_depthwise],
    }
    choices = [now]
    for name in groups:
        choices += [choice.with_floats(groups[name], name) for choice in tuple(choices)]
    allowed = [choice for choice in choices if measurements.is_allowed(choice)] or [now]
    return _cheapest(
        measurements, [now, *(one for choice in allowed for one in _with_each_method(measurements, choice))]
    )


def other_method(measurements: Measurements, now: Int8Choice) -> Int8Choice:
    """Return the best choice with one method for all tensors and the float layers of `now`, if better than `now`."""
    return _cheapest(measurements, [now, *_with_each_method(measurements, now)])


def tied_methods(measurements: Measurements, best: MeasuredChoice) -> tuple[MeasuredChoice, ...]:
    """Return `best`, and behind it what another method makes of it where chance may be all that is between them.

    A method that changes no output is left out: of few images several have the same ranges.
    """
    others = [one for one in _with_each_method(measurements, best.choice) if one.key != best.choice.key]
    tied = [one for one in _finalists(measurements, others) if one.is_close_to(best) and one.errors != best.errors]
    return (best, *sorted(tied, key=lambda one: one.cost))


def _last_layers(measurements: Measurements, now: Int8Choice) -> list[Layer]:
    """Return the last layers; of more than are allowed those that gain most for their work alone, as many as may be."""
    last = [layer for layer in measurements.layers if layer.is_last]
    if measurements.is_allowed(now.with_floats(last, "")):
        return last
    before, *alone = measurements.explored([now, *(now.with_floats([layer], "") for layer in last)])
    gains = {layer: tried.gain_over(before) for layer, tried in zip(last, alone, strict=True)}
    chosen: list[Layer] = []
    for layer in sorted(last, key=lambda one: -worth(gains[one], one)):
        if gains[layer] > 0 and measurements.is_allowed(now.with_floats([*chosen, layer], "")):
            chosen.append(layer)
    return chosen


def _cheapest(measurements: Measurements, choices: Sequence[Int8Choice]) -> Int8Choice:
    """Return the one that costs least on all images: so few choices, and so different ones, find nothing by chance."""
    return min(_finalists(measurements, choices), key=lambda one: one.cost).choice


def _finalists(measurements: Measurements, choices: Sequence[Int8Choice]) -> list[MeasuredChoice]:
    """Return the different ones that cost least on the images to try much on, with their errors on all images.

    In the order they came: of equally good ones the first is to win.
    """
    different: dict[ChoiceKey, Int8Choice] = {}
    for choice in choices:
        different.setdefault(choice.key, choice)
    tried = sorted(measurements.explored(list(different.values())), key=lambda one: one.cost)
    finalists = {one.choice.key for one in tried[:_FINALISTS]}
    return measurements.measured([different[key] for key in different if key in finalists])


def _with_each_method(measurements: Measurements, choice: Int8Choice) -> Iterator[Int8Choice]:
    for method in next(iter(measurements.ranges.values())):
        yield replace(choice, methods=dict.fromkeys(measurements.ranges, method))


# Layers that are worth their time in float: each is tried alone, then the best of them together on other images.
#
# Of a large model only those layers are tried whose neighbourhood helps in float: most of the time goes into making and
# loading a model for each trial.

_SIZES = (1, 2, 3, 4, 6, 8, 12)  # of groups that are tried together, the best ones first
_NEIGHBOURS = 4  # layers that are tried together first
_FLOATS_MOST_TRIALS = 24  # layers that are tried alone; a model of no more of them needs no neighbourhoods


def with_better_floats(measurements: Measurements, now: Int8Choice) -> Int8Choice:
    """Return `now` with more layers in float, or as it is."""
    layers = _promising(measurements, now, measurements.int8_layers(now))
    before, *alone = measurements.explored([now, *(now.with_floats([layer], "") for layer in layers)])
    measurements.gains = {
        layer: tried.gain_over(before)
        for layer, tried in zip(layers, alone, strict=True)
        if tried.is_surely_better_than(before)
    }
    return measurements.better(
        now, [*_grown(measurements, now, worth), *_grown(measurements, now, lambda gain, _: gain)]
    )


def _promising(measurements: Measurements, now: Int8Choice, layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers whose neighbourhoods gain most in float: half of them for the work, half whatever it costs."""
    if len(layers) <= _FLOATS_MOST_TRIALS:
        return list(layers)
    parts = [layers[first : first + _NEIGHBOURS] for first in range(0, len(layers), _NEIGHBOURS)]
    before, *tried = measurements.glanced([now, *(now.with_floats(part, "") for part in parts)])
    gains = [one.gain_over(before) for one in tried]
    worths = [worth(gain, *part) for gain, part in zip(gains, parts, strict=True)]
    half = _FLOATS_MOST_TRIALS // _NEIGHBOURS // 2
    chosen = {i for rank in (gains, worths) for i in sorted(range(len(parts)), key=lambda i: -rank[i])[:half]}
    return [layer for i in sorted(chosen) for layer in parts[i]]


def filled_up(measurements: Measurements, now: Int8Choice) -> Int8Choice:
    """Return `now` with as many useful layers in float as the limits allow, by what they gained alone."""
    for layer in sorted(measurements.gains, key=lambda layer: -worth(measurements.gains[layer], layer)):
        larger = now.with_floats([layer], f"{measurements.gains[layer]:.1%} less error, needed for the promise")
        now = larger if measurements.is_allowed(larger) else now
    return now


def _grown(measurements: Measurements, now: Int8Choice, rank: Callable[[float, Layer], float]) -> Iterator[Int8Choice]:
    """Yield `now` with one, two, three more layers in float, the best ones first, what is not allowed left out."""
    size = 0
    for layer in sorted(measurements.gains, key=lambda layer: -rank(measurements.gains[layer], layer)):
        larger = now.with_floats([layer], f"{measurements.gains[layer]:.1%} less error")
        if size < _SIZES[-1] and measurements.is_allowed(larger):
            now, size = larger, size + 1
            if size in _SIZES:
                yield now


_CLOSE = 0.1  # ranges that differ by less are not worth a trial
_MOST_TRIALS = 12  # those closest to the range of now: what is far off seldom helps


def with_better_ranges(measurements: Measurements, now: Int8Choice) -> Int8Choice:
    """Return `now` with other methods for some tensors, or as it is."""
    pairs = sorted(_alternatives(measurements, now), key=lambda pair: _distance(measurements, now, *pair))[
        :_MOST_TRIALS
    ]
    before, *tried = measurements.explored([now, *(now.with_method(tensor, method) for tensor, method in pairs)])
    gains: dict[str, tuple[float, str]] = {}
    for (tensor, method), one in zip(pairs, tried, strict=True):
        if one.is_surely_better_than(before):
            gains[tensor] = max(gains.get(tensor, (0.0, "")), (one.gain_over(before), method))
    choice, grown = now, []
    for _, tensor, method in sorted(((gain, tensor, method) for tensor, (gain, method) in gains.items()), reverse=True):
        choice = choice.with_method(tensor, method)
        grown.append(choice)
    return measurements.better(now, [grown[size - 1] for size in _SIZES if size <= len(grown)])


def _alternatives(measurements: Measurements, now: Int8Choice) -> Iterator[tuple[str, str]]:
    """Yield tensors and methods whose ranges are really different ones."""
    for tensor, ranges in measurements.ranges.items():
        seen = [ranges[now.methods[tensor]]]
        for method, amax in ranges.items():
            if amax > 0 and all(abs(math.log(amax / other)) > _CLOSE for other in seen if other > 0):
                seen.append(amax)
                yield tensor, method


def _distance(measurements: Measurements, now: Int8Choice, tensor: str, method: str) -> float:
    ranges = measurements.ranges[tensor]
    return abs(math.log(ranges[method] / ranges[now.methods[tensor]]))


_PARTS = 12
_LARGE = 0.2  # of the error now: far more than chance does
_MOST = 4  # outliers; a model with more of them is not mended layer by layer


def without_outliers(measurements: Measurements, now: Int8Choice) -> Int8Choice:
    """Return `now` with the outliers in float, as far as the limits allow."""
    for _ in range(_MOST):
        layer = _worst(measurements, now, measurements.int8_layers(now), _PARTS)
        if layer is None:
            return now
        mended = now.with_floats([layer], "carries a large part of the error alone")
        before, after = measurements.explored([now, mended])
        if not measurements.is_allowed(mended) or after.gain_over(before) <= _LARGE:
            return now
        now = mended
    return now


def _worst(measurements: Measurements, now: Int8Choice, layers: Sequence[Layer], parts: int) -> Layer | None:
    """Return the layer that is found by always taking the part whose return to float helps most."""
    while len(layers) > 1:
        size = -(-len(layers) // parts)
        groups = [layers[first : first + size] for first in range(0, len(layers), size)]
        before, *tried = measurements.glanced([now, *(now.with_floats(group, "") for group in groups)])
        index = min(range(len(groups)), key=lambda i: tried[i].error)
        if tried[index].gain_over(before) <= _LARGE:
            return None
        layers = groups[index]
    return layers[0] if layers else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Result of a search, and the loss of each step on all images, by its name.

    `tied` are `best` and others whose errors chance may have put behind it; somebody else has to decide between them.
    """

    best: MeasuredChoice
    tied: tuple[MeasuredChoice, ...]
    steps: Mapping[str, MeasuredChoice]
    measurements: Measurements
    steady: Measurements

    def settled_by(self, agreement: Callable[[Int8Choice], float]) -> SearchResult:
        """Return the same with that one of what is tied for the best that agrees most; of equals the first.

        `agreement`: how well a choice does what the float model does, more is better; asked where there is a tie.
        """
        if len(self.tied) == 1:
            return self
        chosen = max(self.tied, key=lambda one: agreement(one.choice))
        steps = self.steps if chosen is self.best else {**self.steps, "method by agreement": chosen}
        return replace(self, best=chosen, tied=(chosen,), steps=steps)

    def widened(self, limits: FloatLimits) -> SearchResult:
        """Return what comes out when more may stay in float, as far as that seems to help."""
        for measurements in (self.measurements, self.steady):
            measurements.limits = limits
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
) -> SearchResult:
    """Return the best choice that was found.

    Args:
        ranges: range by tensor and method; every tensor has every method.
        layers: those that can run in INT8, in the order of the model.
        measure: what a choice does to the outputs.
        images: how many there are to measure on.
        steady: another measure, of less noise, which tells what single layers gain in float; None: `measure`.
        floats: layers that stay in float whatever is found, and why; they count towards the limits.
    """
    measurements = Measurements(ranges, layers, measure, images)
    calm = measurements if steady is None else Measurements(ranges, layers, steady, images)
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
