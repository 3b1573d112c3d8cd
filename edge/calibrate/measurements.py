"""Measurements that the steps of a search share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

__all__ = ["ChoiceKey", "FloatLimits", "Int8Choice", "Layer", "Measure", "MeasuredChoice", "Measurements", "worth"]

ChoiceKey = tuple[frozenset[tuple[str, str]], frozenset[str]]

# Float layers cost speed: of two equally good choices the faster one, but accuracy comes first within the limits.
_WORTH_OF_SHARE = 0.25
_SMALLEST_GAIN = 0.005  # of the error: less is not worth a decision, however sure it is
_SHARE_OF_ANY = 0.002  # switching between INT8 and float costs something even where a layer does not
_SURE = 2.0  # standard errors: of a hundred trials that change nothing, two or three still seem to gain so much


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A weighted layer that can run in INT8; `mac_share` is its part of all multiply-accumulates of the model.

    `is_last`: no other weighted layer follows between it and the outputs.
    """

    name: str
    mac_share: float
    is_depthwise: bool
    is_last: bool


def worth(gain: float, *layers: Layer) -> float:
    """Return what `layers` gain in float for their part of the work."""
    return gain / (sum(layer.mac_share for layer in layers) + _SHARE_OF_ANY)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatLimits:
    """How much may stay in float, as a part of all multiply-accumulates."""

    other: float = 0.05  # layers that are not depthwise
    total: float = 0.15  # all together


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Choice:
    """A method for each tensor, and the layers that stay in float with the reason for each."""

    methods: Mapping[str, str]
    floats: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> ChoiceKey:
        """Key that tells its model from that of another choice; reasons are not in it."""
        return frozenset(self.methods.items()), frozenset(self.floats)

    def with_method(self, tensor: str, method: str) -> Int8Choice:
        return replace(self, methods={**self.methods, tensor: method})

    def with_floats(self, layers: Sequence[Layer], why: str) -> Int8Choice:
        return replace(self, floats={**dict.fromkeys((layer.name for layer in layers), why), **self.floats})


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredChoice:
    """A choice, the error of its outputs on each of some images (0 is as float), and its part of the work in float."""

    choice: Int8Choice
    errors: tuple[float, ...]
    float_share: float

    @property
    def error(self) -> float:
        """The mean over the images."""
        return statistics.fmean(self.errors)

    @property
    def cost(self) -> float:
        """The loss that choices are compared by."""
        return self.error * (1 + _WORTH_OF_SHARE * self.float_share)

    def gain_over(self, other: MeasuredChoice) -> float:
        """Return by how much the error is smaller than that of `other` on the same images, as a part of it."""
        return 1 - self.error / other.error if other.error else 0.0

    def is_surely_better_than(self, other: MeasuredChoice) -> bool:
        """Return whether it costs less than `other` by more than chance makes of the same images."""
        is_sure = other.error - self.error > _SURE * self._chance_beside(other)
        return is_sure and self.cost < (1 - _SMALLEST_GAIN) * other.cost

    def is_close_to(self, best: MeasuredChoice) -> bool:
        """Return whether its error is above that of `best` by no more than one standard error of the difference."""
        return self.error - best.error <= self._chance_beside(best)

    def _chance_beside(self, other: MeasuredChoice) -> float:
        """Return the standard error of the difference from `other`, paired by image."""
        falls = [before - after for before, after in zip(other.errors, self.errors, strict=True)]
        return statistics.stdev(falls) / math.sqrt(len(falls)) if len(falls) > 1 else 0.0


class Measure(Protocol):
    """Returns the errors at the model's outputs of each of some choices, in their order; equal for equal choices.

    The same is asked again and again: what is known, the measure has to keep.
    """

    def __call__(self, choices: Sequence[Int8Choice], images: range) -> list[tuple[float, ...]]:
        """Return errors on each of `images`, by number; 0 for outputs equal to those of the float model."""


_GLANCED = 8
_EXPLORED = 16
_FEWEST_TO_CONFIRM = 8


class Measurements:
    """Measures choices.

    A step that tries much on the first images finds some choices that suit these only. So it decides on the others.
    What is far off shows on very few images. `ranges`: range by tensor and method. `layers`: in the order of the model.
    `images`: how many there are to measure on. `gains`: by how much the error surely fell, as a part of it, with each
    layer alone in float.
    """

    def __init__(
        self,
        ranges: Mapping[str, Mapping[str, float]],
        layers: Sequence[Layer],
        measure: Measure,
        images: int,
    ) -> None:
        self.ranges = ranges
        self.layers = layers
        self.limits = FloatLimits()
        self.gains: dict[Layer, float] = {}
        self._measure = measure
        self._shares = {layer.name: layer for layer in layers}
        self._all = range(images)
        is_split = images >= _EXPLORED + _FEWEST_TO_CONFIRM
        self._explored, self._others = (self._all[:_EXPLORED], self._all[_EXPLORED:]) if is_split else (self._all,) * 2

    def measured(self, choices: Sequence[Int8Choice]) -> list[MeasuredChoice]:
        """Return the choices with their errors on all images, in their order."""
        return self._on(self._all, choices)

    def glanced(self, choices: Sequence[Int8Choice]) -> list[MeasuredChoice]:
        """Return the choices with their errors on a few images, in their order."""
        return self._on(self._explored[:_GLANCED], choices)

    def explored(self, choices: Sequence[Int8Choice]) -> list[MeasuredChoice]:
        """Return the choices with their errors on the images to try much on, in their order."""
        return self._on(self._explored, choices)

    def confirmed(self, choices: Sequence[Int8Choice]) -> list[MeasuredChoice]:
        """Return the choices with their errors on the other images, in their order."""
        return self._on(self._others, choices)

    def better(self, now: Int8Choice, others: Sequence[Int8Choice]) -> Int8Choice:
        """Return the one of `others` that costs least on the other images, `now` if it is not surely better there."""
        before, *after = self.confirmed([now, *others])
        best = min(after, key=lambda one: one.cost, default=before)
        return best.choice if best.is_surely_better_than(before) else now

    def float_share(self, choice: Int8Choice) -> float:
        """Return the part of the work that `choice` leaves in float."""
        return sum(self._shares[name].mac_share for name in choice.floats if name in self._shares)

    def is_allowed(self, choice: Int8Choice) -> bool:
        layers = [self._shares[name] for name in choice.floats if name in self._shares]
        others = sum(layer.mac_share for layer in layers if not layer.is_depthwise)
        return others <= self.limits.other and sum(layer.mac_share for layer in layers) <= self.limits.total

    def int8_layers(self, choice: Int8Choice) -> list[Layer]:
        return [layer for layer in self.layers if layer.name not in choice.floats]

    def _on(self, images: range, choices: Sequence[Int8Choice]) -> list[MeasuredChoice]:
        found = zip(choices, self._measure(choices, images), strict=True)
        return [
            MeasuredChoice(choice=choice, errors=errors, float_share=self.float_share(choice))
            for choice, errors in found
        ]
