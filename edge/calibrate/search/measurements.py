"""What the steps of a search share: layers, limits, images, and choices that are never measured twice on one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge.calibrate.search.choice import ChoiceKey, FloatLimits, Int8Choice, Layer, Measure, MeasuredChoice

__all__ = ["Measurements"]

_GLANCED = 8
_EXPLORED = 16
_FEWEST_TO_CONFIRM = 8


class Measurements:
    """Measures choices.

    A step that tries much on the first images finds some choices that suit these only. So it decides on the others.
    What is far off shows on very few images.

    Args:
        ranges: range by tensor and method.
        layers: in the order of the model.
        limits: of what may stay in float.
        measure: measures.
        images: how many there are to measure on.

    Attributes:
        gains: by how much the error surely fell, as a part of it, with each layer alone in float.
    """

    def __init__(
        self,
        ranges: Mapping[str, Mapping[str, float]],
        layers: Sequence[Layer],
        limits: FloatLimits,
        measure: Measure,
        images: int,
    ) -> None:
        self.ranges = ranges
        self.layers = layers
        self.limits = limits
        self.gains: dict[Layer, float] = {}
        self._measure = measure
        self._shares = {layer.name: layer for layer in layers}
        self._errors: dict[ChoiceKey, dict[int, float]] = {}
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

    def widen(self, limits: FloatLimits) -> None:
        """Allow more in float from now on."""
        self.limits = limits

    def is_allowed(self, choice: Int8Choice) -> bool:
        """Return whether `choice` leaves no more in float than the limits allow."""
        layers = [self._shares[name] for name in choice.floats if name in self._shares]
        others = sum(layer.mac_share for layer in layers if not layer.is_depthwise)
        return others <= self.limits.other and sum(layer.mac_share for layer in layers) <= self.limits.total

    def int8_layers(self, choice: Int8Choice) -> list[Layer]:
        """Return the layers that `choice` runs in INT8."""
        return [layer for layer in self.layers if layer.name not in choice.floats]

    def _on(self, images: range, choices: Sequence[Int8Choice]) -> list[MeasuredChoice]:
        missing: dict[range, dict[ChoiceKey, Int8Choice]] = {}
        for choice in choices:
            known = self._errors.setdefault(choice.key, {})
            if left := [image for image in images if image not in known]:
                missing.setdefault(range(left[0], left[-1] + 1), {})[choice.key] = choice
        for part, new in missing.items():
            for key, errors in zip(new, self._measure(list(new.values()), part), strict=True):
                self._errors[key].update(zip(part, errors, strict=True))
        return [
            MeasuredChoice(
                choice=choice,
                errors=tuple(self._errors[choice.key][image] for image in images),
                float_share=self.float_share(choice),
            )
            for choice in choices
        ]
