"""One method for all tensors, with different groups of layers in float."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from edge.calibrate.search.bench import Bench
from edge.calibrate.search.choice import Choice, Measured

__all__ = ["best_group", "best_method"]


def best_method(bench: Bench, choice: Choice) -> Measured:
    """Return the best choice that has one method for all tensors, with the float layers of `choice`."""
    return bench.best(list(_with_each_method(bench, choice)))


def best_group(bench: Bench, now: Measured) -> Measured:
    """Return the best choice of a method for all tensors and a group of layers in float, if better than `now`."""
    groups = {
        "one of the last layers": [layer for layer in bench.layers if layer.is_last],
        "depthwise": [layer for layer in bench.layers if layer.is_depthwise],
    }
    choices = [now.choice]
    for name in groups:
        choices += [choice.with_floats(groups[name], name) for choice in tuple(choices)]
    allowed = [choice for choice in choices if bench.is_allowed(choice)] or [now.choice]
    return bench.best([now.choice, *(one for choice in allowed for one in _with_each_method(bench, choice))])


def _with_each_method(bench: Bench, choice: Choice) -> Iterator[Choice]:
    for method in _methods(bench):
        yield replace(choice, methods=dict.fromkeys(bench.ranges, method))


def _methods(bench: Bench) -> Sequence[str]:
    return tuple(next(iter(bench.ranges.values())))
