"""The roofline: what a machine's compute and memory allow for each layer of a model; bounds, never predictions."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Protocol

from edge.model.account import LayerAccount, ModelAccount
from edge.types import Precision

__all__ = ["Bound", "LayerBound", "ModelBound", "Roofs", "bound_of_model"]


class Roofs(Protocol):
    """What bounds layers: a machine of the table, or one that was measured."""

    @property
    def called(self) -> str:
        """Its name as `--machine` takes it."""
        ...

    @property
    def title(self) -> str:
        """Its name for people."""
        ...

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth of the memory, beyond all caches."""
        ...

    @property
    def l2_bytes(self) -> float | None:
        """Size of the last cache; None where it is not known."""
        ...

    def peak(self, precision: Precision) -> float | None:
        """Return dense operations per second; None where they are not known."""
        ...

    def ridge(self, precision: Precision) -> float | None:
        """Return the operations per byte from which on compute is the bound; None where the peak is not known."""
        ...

    def move_s(self, moved_bytes: float) -> float:
        """Return the least seconds in which a layer moves so many bytes."""
        ...

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        ...


class Bound(str, enum.Enum):
    """What a layer waits for at least."""

    COMPUTE = "compute"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBound:
    """One layer on one machine, for a whole batch.

    Attributes:
        compute_s: its operations at the peak of its precision.
        memory_s: its bytes at the bandwidth of the memory; on a measured machine, of a working set of their size.
    """

    layer: LayerAccount
    compute_s: float
    memory_s: float

    @property
    def least_s(self) -> float:
        """The longer of the two: they can be hidden behind each other, and no further."""
        return max(self.compute_s, self.memory_s)

    @property
    def bound(self) -> Bound:
        """Which of the two it is."""
        return Bound.COMPUTE if self.compute_s > self.memory_s else Bound.MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBound:
    """A model on one machine, its layers one after another.

    Attributes:
        least_s: for the batch, where the tensors of each layer pass through memory once.
        floor_s: for the batch, if caches kept every activation, and as many weights as they hold: never less.
    """

    machine: Roofs
    account: ModelAccount
    layers: tuple[LayerBound, ...]
    least_s: float
    floor_s: float

    @property
    def least_s_per_frame(self) -> float:
        """Of one frame of the batch."""
        return self.least_s / self.account.batch

    @property
    def floor_s_per_frame(self) -> float:
        """Of one frame of the batch."""
        return self.floor_s / self.account.batch

    @property
    def memory_bound(self) -> tuple[LayerBound, ...]:
        """The layers that wait for memory."""
        return tuple(one for one in self.layers if one.bound is Bound.MEMORY)

    @property
    def memory_bound_time_share(self) -> float:
        """Their part of the least time."""
        return sum(one.least_s for one in self.memory_bound) / self.least_s if self.least_s else 0.0

    def share(self, one: LayerBound) -> float:
        """Return a layer's part of the least time."""
        return one.least_s / self.least_s if self.least_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        return {
            "precision": self.account.precision.value,
            "least_s_per_frame": self.least_s_per_frame,
            "floor_s_per_frame": self.floor_s_per_frame,
            "memory_bound_layers": len(self.memory_bound),
            "memory_bound_time_share": round(self.memory_bound_time_share, 4),
            "layers": [_as_json(one) for one in self.layers],
        }


def bound_of_model(account: ModelAccount, machine: Roofs) -> ModelBound | None:
    """Return what bounds a model on a machine; None where the machine's peak in one of its precisions is not known."""
    layers = [_bound_of_layer(layer, machine) for layer in account.layers]
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


def _bound_of_layer(layer: LayerAccount, machine: Roofs) -> LayerBound | None:
    peak = machine.peak(layer.precision)
    if peak is None:
        return None
    return LayerBound(layer=layer, compute_s=layer.operations / peak, memory_s=machine.move_s(layer.moved_bytes))


def _as_json(one: LayerBound) -> dict[str, Any]:
    return {
        "layer": one.layer.name,
        "operator": one.layer.op_type,
        "precision": one.layer.precision.value,
        "intensity": round(one.layer.intensity, 4),
        "bound": one.bound.value,
        "least_s": one.least_s,
    }
