"""What can be chosen, and what a choice is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

__all__ = ["Choice", "Layer", "Limits", "Measure", "Measured"]

# Float layers cost speed: of two equally good choices the faster one, but accuracy comes first within the limits.
_WORTH_OF_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A weighted layer that can run in INT8; `mac_share` is its part of all multiply-accumulates of the model.

    `is_last`: no other weighted layer follows between it and the outputs.
    """

    name: str
    mac_share: float
    is_depthwise: bool
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may stay in float, as a part of all multiply-accumulates.

    Attributes:
        other: layers that are not depthwise.
        total: all together.
    """

    other: float = 0.05
    total: float = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A method for each tensor, and the layers that stay in float with the reason for each."""

    methods: Mapping[str, str]
    floats: Mapping[str, str] = field(default_factory=dict)

    def with_method(self, tensor: str, method: str) -> Choice:
        """Return the same with another method for one tensor."""
        return replace(self, methods={**self.methods, tensor: method})

    def with_floats(self, layers: Sequence[Layer], why: str) -> Choice:
        """Return the same with more layers in float."""
        return replace(self, floats={**dict.fromkeys((layer.name for layer in layers), why), **self.floats})


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A choice, the error of its outputs (0 is equal to float), and its part of the work in float."""

    choice: Choice
    error: float
    float_share: float

    @property
    def cost(self) -> float:
        """What choices are compared by."""
        return self.error * (1 + _WORTH_OF_SHARE * self.float_share)


class Measure(Protocol):
    """Returns the error at the model's outputs for each of some choices, in their order; equal for equal choices."""

    def __call__(self, choices: Sequence[Choice]) -> list[float]:
        """Return errors, 0 for outputs equal to those of the float model."""
        ...
