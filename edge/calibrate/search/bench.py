"""What the steps of a search share: layers, limits, and measured choices that are never measured twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge.calibrate.search.choice import Choice, Layer, Limits, Measure, Measured

__all__ = ["Bench"]

_Key = tuple[frozenset[tuple[str, str]], frozenset[str]]


class Bench:
    """Measures choices.

    Args:
        ranges: range by tensor and method.
        layers: in the order of the model.
        limits: of what may stay in float.
        measure: measures.

    Attributes:
        gains: by how much the error fell, as a part of it, with each layer alone in float; only those that helped.
    """

    def __init__(
        self,
        ranges: Mapping[str, Mapping[str, float]],
        layers: Sequence[Layer],
        limits: Limits,
        measure: Measure,
    ) -> None:
        self.ranges = ranges
        self.layers = layers
        self.limits = limits
        self.gains: dict[Layer, float] = {}
        self._measure = measure
        self._shares = {layer.name: layer for layer in layers}
        self._errors: dict[_Key, float] = {}

    def measured(self, choices: Sequence[Choice]) -> list[Measured]:
        """Return the choices with their errors, in their order."""
        new = {_key(choice): choice for choice in choices if _key(choice) not in self._errors}
        self._errors |= dict(zip(new, self._measure(list(new.values())), strict=True))
        return [
            Measured(choice=choice, error=self._errors[_key(choice)], float_share=self.float_share(choice))
            for choice in choices
        ]

    def best(self, choices: Sequence[Choice]) -> Measured:
        """Return the one that costs least; of equal ones the first."""
        return min(self.measured(choices), key=lambda one: one.cost)

    def float_share(self, choice: Choice) -> float:
        """Return the part of the work that `choice` leaves in float."""
        return sum(self._shares[name].mac_share for name in choice.floats if name in self._shares)

    def forget(self) -> None:
        """Measure everything anew from now on: the images have changed."""
        self._errors.clear()

    def widen(self, limits: Limits) -> None:
        """Allow more in float from now on."""
        self.limits = limits

    def is_allowed(self, choice: Choice) -> bool:
        """Return whether `choice` leaves no more in float than the limits allow."""
        layers = [self._shares[name] for name in choice.floats if name in self._shares]
        others = sum(layer.mac_share for layer in layers if not layer.is_depthwise)
        return others <= self.limits.other and sum(layer.mac_share for layer in layers) <= self.limits.total

    def int8_layers(self, choice: Choice) -> list[Layer]:
        """Return the layers that `choice` runs in INT8."""
        return [layer for layer in self.layers if layer.name not in choice.floats]


def _key(choice: Choice) -> _Key:
    return frozenset(choice.methods.items()), frozenset(choice.floats)
