"""One method for all tensors, with different groups of layers in float."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from edge.calibrate.search.choice import ChoiceKey, Int8Choice, Layer, MeasuredChoice, worth
from edge.calibrate.search.measurements import Measurements

__all__ = ["best_group", "best_method", "other_method", "tied_methods"]

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
    for method in _methods(measurements):
        yield replace(choice, methods=dict.fromkeys(measurements.ranges, method))


def _methods(measurements: Measurements) -> Sequence[str]:
    return tuple(next(iter(measurements.ranges.values())))
