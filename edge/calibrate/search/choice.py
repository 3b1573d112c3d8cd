"""What can be chosen, and what a choice is worth."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

__all__ = ["ChoiceKey", "FloatLimits", "Int8Choice", "Layer", "Measure", "MeasuredChoice", "worth"]

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
    """How much may stay in float, as a part of all multiply-accumulates.

    Attributes:
        other: layers that are not depthwise.
        total: all together.
    """

    other: float = 0.05
    total: float = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Choice:
    """A method for each tensor, and the layers that stay in float with the reason for each."""

    methods: Mapping[str, str]
    floats: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> ChoiceKey:
        """What makes it another model than that of another choice; reasons do not."""
        return frozenset(self.methods.items()), frozenset(self.floats)

    def with_method(self, tensor: str, method: str) -> Int8Choice:
        """Return the same with another method for one tensor."""
        return replace(self, methods={**self.methods, tensor: method})

    def with_floats(self, layers: Sequence[Layer], why: str) -> Int8Choice:
        """Return the same with more layers in float."""
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
        """What choices are compared by."""
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
    """Returns the errors at the model's outputs of each of some choices, in their order; equal for equal choices."""

    def __call__(self, choices: Sequence[Int8Choice], images: range) -> list[tuple[float, ...]]:
        """Return errors on each of `images`, by number; 0 for outputs equal to those of the float model."""
        ...
