"""The roofline: what a machine's compute and memory allow for each layer of a model; bounds, never predictions."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from edge.errors import ConfigError
from edge.model.layer_account import LayerAccount, ModelAccount
from edge.roofline.machines import Machine
from edge.types import Precision

__all__ = [
    "Bound",
    "Gain",
    "LayerBound",
    "LayerWorth",
    "ModelBound",
    "Worth",
    "bound_of_model",
    "require_bound",
    "worth_of_int8",
]


class Bound(str, enum.Enum):
    """The resource that bounds a layer."""

    COMPUTE = "compute"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBound:
    """One layer on one machine, for a whole batch."""

    layer: LayerAccount
    compute_s: float  # its operations at the peak of its precision
    memory_s: float  # its bytes at the bandwidth of the memory

    @property
    def least_s(self) -> float:
        """The longer of the two: they can be hidden behind each other, and no further."""
        return max(self.compute_s, self.memory_s)

    @property
    def bound(self) -> Bound:
        return Bound.COMPUTE if self.compute_s > self.memory_s else Bound.MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBound:
    """A model on one machine, its layers one after another."""

    machine: Machine
    account: ModelAccount
    layers: tuple[LayerBound, ...]
    least_s: float  # for the batch, where the tensors of each layer pass through memory once
    floor_s: float  # for the batch, if caches kept every activation, and as many weights as they hold: never less

    @property
    def least_s_per_frame(self) -> float:
        return self.least_s / self.account.batch

    @property
    def floor_s_per_frame(self) -> float:
        return self.floor_s / self.account.batch

    @property
    def memory_bound(self) -> tuple[LayerBound, ...]:
        return tuple(one for one in self.layers if one.bound is Bound.MEMORY)

    @property
    def memory_bound_time_share(self) -> float:
        return sum(one.least_s for one in self.memory_bound) / self.least_s if self.least_s else 0.0

    def share(self, one: LayerBound) -> float:
        return one.least_s / self.least_s if self.least_s else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "precision": self.account.precision.value,
            "least_s_per_frame": self.least_s_per_frame,
            "floor_s_per_frame": self.floor_s_per_frame,
            "memory_bound_layers": len(self.memory_bound),
            "memory_bound_time_share": round(self.memory_bound_time_share, 4),
            "layers": [_as_json(one) for one in self.layers],
        }


def bound_of_model(account: ModelAccount, machine: Machine) -> ModelBound | None:
    """Return what bounds a model on a machine; None where the machine's peak in one of its precisions is not known."""
    layers = [_bound_of_layer(layer, machine) for layer in _computed(account, machine)]
    known = tuple(layer for layer in layers if layer is not None)
    if len(known) < len(layers):
        return None
    kept_bytes = account.weight_bytes if machine.l2_bytes is None else machine.l2_bytes
    reread_s = max(account.weight_bytes - kept_bytes, 0.0) / machine.bytes_per_s
    return ModelBound(
        machine=machine,
        account=account,
        layers=known,
        least_s=sum(one.least_s for one in known),
        floor_s=max(sum(one.compute_s for one in known), reread_s),
    )


def require_bound(account: ModelAccount, machine: Machine) -> None:
    """Raise `ConfigError` where a peak of the machine is not known that the model needs."""
    lacking = Counter(one.precision for one in _computed(account, machine) if machine.peak(one.precision) is None)
    if lacking:
        peaks = ", nor for ".join(f"{kind.value}, which {count} layers need" for kind, count in lacking.items())
        hint = "name another machine, or prove this one anew: edge-runtime prove measures what it can"
        raise ConfigError(f"machine {machine.called}: has no peak for {peaks}", hint=hint)


def _computed(account: ModelAccount, machine: Machine) -> Iterator[LayerAccount]:
    """Yield the layers as the machine computes them.

    What INT8 leaves in float is counted in FP16, as of GPUs; without a peak in that it is FP32, of no fewer bytes.
    """
    is_in_fp32 = account.precision is Precision.INT8 and machine.peak(Precision.FP16) is None
    for layer in account.layers:
        yield replace(layer, precision=Precision.FP32) if is_in_fp32 and layer.precision is Precision.FP16 else layer


def _bound_of_layer(layer: LayerAccount, machine: Machine) -> LayerBound | None:
    peak = machine.peak(layer.precision)
    if peak is None:
        return None
    memory_s = layer.moved_bytes / machine.bytes_per_s
    return LayerBound(layer=layer, compute_s=layer.operations / peak, memory_s=memory_s)


def _as_json(one: LayerBound) -> dict[str, Any]:
    return {
        "layer": one.layer.name,
        "operator": one.layer.op_type,
        "precision": one.layer.precision.value,
        "intensity": round(one.layer.intensity, 4),
        "bound": one.bound.value,
        "least_s": one.least_s,
    }


_SAME = 1e-9


class Gain(str, enum.Enum):
    """Kind of a layer's gain in INT8."""

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
        one = self.after or self.before
        assert one is not None
        return one.layer.name

    @property
    def before_s(self) -> float:
        return 0.0 if self.before is None else self.before.least_s

    @property
    def after_s(self) -> float:
        return 0.0 if self.after is None else self.after.least_s

    @property
    def saved_s(self) -> float:
        """Gain in seconds; below 0 it is a loss."""
        return self.before_s - self.after_s

    @property
    def is_int8(self) -> bool:
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
        return {
            "layer": self.name,
            "gain": self.gain.value,
            "is_int8": self.is_int8,
            "float_least_s": self.before_s,
            "int8_least_s": self.after_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A model in float, and in INT8 as it would be run."""

    before: ModelBound
    after: ModelBound
    layers: tuple[LayerWorth, ...]
    # with everything in INT8 that can be; what the float remainder of a table costs is seen against it
    most: ModelBound | None = None

    @property
    def times_faster(self) -> float:
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
    """`before`: the model in float. `after`: in INT8, on the same machine. `most`: with everything in INT8 that can be,
    where `after` follows a table.
    """
    floats: Mapping[str, LayerBound] = {one.layer.name: one for one in before.layers}
    named = {one.layer.name for one in after.layers}
    layers = [LayerWorth(before=floats.get(one.layer.name), after=one) for one in after.layers]
    gone = [LayerWorth(before=one, after=None) for one in before.layers if one.layer.name not in named]
    return Worth(before=before, after=after, layers=(*layers, *gone), most=most)
