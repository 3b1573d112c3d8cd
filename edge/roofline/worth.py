"""What INT8 is worth on a machine, before anybody tries it: layer by layer, against the same model in float."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edge.roofline.bound import Bound, LayerBound, ModelBound
from edge.types import Precision

__all__ = ["Gain", "LayerWorth", "Worth", "worth_of_int8"]

_SAME = 1e-9


class Gain(str, enum.Enum):
    """What a layer gains in INT8."""

    OPERATIONS = "operations"
    BYTES = "bytes"
    NOTHING = "nothing"
    LESS_THAN_NOTHING = "less than nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWorth:
    """One layer in both; None where it is a layer of one of them alone."""

    before: LayerBound | None
    after: LayerBound | None

    @property
    def name(self) -> str:
        """Of the layer."""
        one = self.after or self.before
        assert one is not None
        return one.layer.name

    @property
    def before_s(self) -> float:
        """Least time in float."""
        return 0.0 if self.before is None else self.before.least_s

    @property
    def after_s(self) -> float:
        """Least time in the INT8 model."""
        return 0.0 if self.after is None else self.after.least_s

    @property
    def saved_s(self) -> float:
        """What is gained; below 0 it is lost."""
        return self.before_s - self.after_s

    @property
    def is_int8(self) -> bool:
        """Whether it computes in INT8."""
        return self.after is not None and self.after.layer.precision is Precision.INT8

    @property
    def gain(self) -> Gain:
        """A layer that waits for compute in float gains by operations, another one by bytes alone."""
        if abs(self.saved_s) <= _SAME * max(self.before_s, self.after_s):
            return Gain.NOTHING
        if self.saved_s < 0:
            return Gain.LESS_THAN_NOTHING
        is_by_operations = self.is_int8 and self.before is not None and self.before.bound is Bound.COMPUTE
        return Gain.OPERATIONS if is_by_operations else Gain.BYTES

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        return {
            "layer": self.name,
            "gain": self.gain.value,
            "is_int8": self.is_int8,
            "float_least_s": self.before_s,
            "int8_least_s": self.after_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A model in float, and in INT8 as it would be run.

    Attributes:
        most: with everything in INT8 that can be; what the float remainder of a table costs is seen against it.
    """

    before: ModelBound
    after: ModelBound
    layers: tuple[LayerWorth, ...]
    most: ModelBound | None = None

    @property
    def times_faster(self) -> float:
        """By least times."""
        return self.before.least_s / self.after.least_s

    def of(self, gain: Gain) -> tuple[LayerWorth, ...]:
        """Return the layers that gain in this way, those that gain or lose most first."""
        return tuple(sorted((one for one in self.layers if one.gain is gain), key=lambda one: -abs(one.saved_s)))

    @property
    def remainder_s(self) -> float:
        """What layers in float cost that could be in INT8, for the batch, with what their neighbours move for it."""
        return 0.0 if self.most is None else self.after.least_s - self.most.least_s

    @property
    def left_in_float(self) -> tuple[LayerWorth, ...]:
        """Layers that are in float here and could be in INT8, the costliest first."""
        if self.most is None:
            return ()
        could = {one.layer.name: one for one in self.most.layers if one.layer.precision is Precision.INT8}
        kept = [one for one in self.layers if one.after is not None and not one.is_int8 and one.name in could]
        return tuple(sorted(kept, key=lambda one: could[one.name].least_s - one.after_s))

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        return {
            "float": self.before.account.precision.value,
            "float_least_s_per_frame": self.before.least_s_per_frame,
            "int8_least_s_per_frame": self.after.least_s_per_frame,
            "times_faster": round(self.times_faster, 4),
            "saved_s": {gain.value: sum(one.saved_s for one in self.of(gain)) for gain in Gain},
            "float_remainder_s": self.remainder_s,
            "left_in_float": [one.name for one in self.left_in_float],
            "layers": [one.as_json() for one in self.layers],
        }


def worth_of_int8(before: ModelBound, after: ModelBound, *, most: ModelBound | None = None) -> Worth:
    """Return what INT8 is worth.

    Args:
        before: the model in float.
        after: in INT8, on the same machine.
        most: with everything in INT8 that can be, where `after` follows a table.
    """
    floats: Mapping[str, LayerBound] = {one.layer.name: one for one in before.layers}
    named = {one.layer.name for one in after.layers}
    layers = [LayerWorth(before=floats.get(one.layer.name), after=one) for one in after.layers]
    gone = [LayerWorth(before=one, after=None) for one in before.layers if one.layer.name not in named]
    return Worth(before=before, after=after, layers=(*layers, *gone), most=most)
