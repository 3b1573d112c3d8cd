"""What an engine took for the layers of a model, against what bounds them.

An engine has nodes of its own: it fuses operators, cuts others into several, and adds some that no model has. Layers
and nodes that share an operator of the file belong together; what belongs to nothing is told, not dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edge.roofline.bound import LayerBound, ModelBound

__all__ = ["ExecutedNode", "MeasuredLayer", "MeasuredModel", "measured_model"]

_FAR_BELOW, _FEW = 0.5, 8
_WORTH_NAMING = 0.01  # of the frame's time that lies above the bound


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedNode:
    """A node that an engine has run.

    Attributes:
        name: in the engine.
        kind: what it is there, as `Convolution brgconv_avx512_f32`.
        layers: which of the names that were asked for went into it.
        seconds: for the batch, in the fastest block of runs.
    """

    name: str
    kind: str
    layers: frozenset[str]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLayer:
    """A layer, or several that the engine made one, with the nodes that it ran for them.

    Attributes:
        least_s: what they take at least; of several layers in one, what no engine saves by fusing them.
    """

    layers: tuple[LayerBound, ...]
    nodes: tuple[ExecutedNode, ...]
    least_s: float

    @property
    def called(self) -> str:
        """Names of the layers."""
        return " + ".join(one.layer.name for one in self.layers)

    @property
    def measured_s(self) -> float:
        """For the batch."""
        return sum(node.seconds for node in self.nodes)

    @property
    def efficiency(self) -> float:
        """Its least time as a part of the measured; above 1 it has beaten its bound."""
        return self.least_s / self.measured_s

    @property
    def lost_s(self) -> float:
        """What it takes beyond its least time."""
        return self.measured_s - self.least_s

    @property
    def operations(self) -> int:
        """Of all its layers."""
        return sum(one.layer.operations for one in self.layers)

    @property
    def intensity(self) -> float:
        """Operations for each byte that its layers move."""
        moved = sum(one.layer.moved_bytes for one in self.layers)
        return self.operations / moved if moved else 0.0

    def excess(self, resolution_s: float) -> float:
        """Return by how much it is faster than its bound, beyond what the engine's clock can tell; 0 or less: not."""
        return self.least_s / (self.measured_s + resolution_s) - 1

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        return {
            "layers": [one.layer.name for one in self.layers],
            "nodes": [{"name": node.name, "kind": node.kind, "seconds": node.seconds} for node in self.nodes],
            "least_s": self.least_s,
            "measured_s": self.measured_s,
            "efficiency": round(self.efficiency, 4),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    """A model as an engine ran it.

    Attributes:
        run_s: from giving it a batch to having its output, the fastest run.
        beside: nodes of the engine that are no layer of the account: reordering, preprocess, what it copies.
        untimed: layers without a node of their own: computed with others, or in less than the clock can tell.
        resolution_s: of the engine's clock.
        interrupted: part of the runs during which others had a core.
    """

    bound: ModelBound
    run_s: float
    layers: tuple[MeasuredLayer, ...]
    beside: tuple[ExecutedNode, ...]
    untimed: tuple[LayerBound, ...]
    resolution_s: float
    interrupted: float = 0.0

    @property
    def ratio(self) -> float:
        """Least time of the model as a part of the measured."""
        return self.bound.least_s / self.run_s

    @property
    def beside_s(self) -> float:
        """What nodes take that belong to no layer."""
        return sum(node.seconds for node in self.beside)

    @property
    def layers_s(self) -> float:
        """What the layers take."""
        return sum(one.measured_s for one in self.layers)

    @property
    def between_s(self) -> float:
        """What is in no node: handing over between them, and waiting."""
        return max(self.run_s - self.layers_s - self.beside_s, 0.0)

    @property
    def excess(self) -> float:
        """By how much the fastest layer is faster than its bound; 0 or less: none is."""
        return max((one.excess(self.resolution_s) for one in self.layers), default=0.0)

    @property
    def far_below(self) -> tuple[MeasuredLayer, ...]:
        """Layers that take more than twice their least time, those that lose most first, as far as it matters."""
        slow = [one for one in self.layers if one.efficiency < _FAR_BELOW and one.lost_s > _WORTH_NAMING * self.run_s]
        return tuple(sorted(slow, key=lambda one: -one.lost_s)[:_FEW])

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        return {
            "precision": self.bound.account.precision.value,
            "measured_s_per_frame": self.run_s / self.bound.account.batch,
            "ratio": round(self.ratio, 4),
            "layers_s": self.layers_s,
            "beside_s": self.beside_s,
            "between_s": self.between_s,
            "interrupted_runs": round(self.interrupted, 4),
            "fastest_beyond_bound": round(max(self.excess, 0.0), 4),
            "far_below": [one.called for one in self.far_below],
            "layers": [one.as_json() for one in self.layers],
            "beside": [{"name": node.name, "kind": node.kind, "seconds": node.seconds} for node in self.beside],
            "untimed": [one.layer.name for one in self.untimed],
        }


def measured_model(
    bound: ModelBound,
    nodes: Sequence[ExecutedNode],
    *,
    run_s: float,
    resolution_s: float,
    interrupted: float = 0.0,
) -> MeasuredModel:
    """Return the layers of a bound with the nodes that an engine ran for them."""
    groups = _Groups(bound, nodes)
    found = [_measured(bound, layers, ran) for layers, ran in groups.both()]
    timed = tuple(one for one in found if one.measured_s > 0)
    known = {id(layer) for one in timed for layer in one.layers}
    return MeasuredModel(
        bound=bound,
        run_s=run_s,
        layers=timed,
        beside=groups.beside(),
        untimed=tuple(one for one in bound.layers if id(one) not in known),
        resolution_s=resolution_s,
        interrupted=interrupted,
    )


def _measured(bound: ModelBound, layers: Sequence[LayerBound], nodes: Sequence[ExecutedNode]) -> MeasuredLayer:
    least_s = layers[0].least_s
    if len(layers) > 1:  # what one makes for the next need never be stored; their weights have to be read
        weight_bytes = sum(one.layer.weight_bytes for one in layers)
        least_s = max(sum(one.compute_s for one in layers), bound.machine.move_s(weight_bytes))
    return MeasuredLayer(layers=tuple(layers), nodes=tuple(nodes), least_s=least_s)


class _Groups:
    """Layers and nodes that share an operator, directly or through others."""

    def __init__(self, bound: ModelBound, nodes: Sequence[ExecutedNode]) -> None:
        self._layers = bound.layers
        self._nodes = nodes
        layer_of = {name: number for number, one in enumerate(bound.layers) for name in one.layer.nodes}
        self._touched = [sorted({layer_of[name] for name in node.layers if name in layer_of}) for node in nodes]
        self._head = list(range(len(bound.layers)))
        for numbers in self._touched:
            for number in numbers[1:]:
                self._head[self._first(number)] = self._first(numbers[0])

    def both(self) -> list[tuple[list[LayerBound], list[ExecutedNode]]]:
        """Return each group that has a node, in the order of the model."""
        layers: dict[int, list[LayerBound]] = {}
        for number, one in enumerate(self._layers):
            layers.setdefault(self._first(number), []).append(one)
        nodes: dict[int, list[ExecutedNode]] = {}
        for node, numbers in zip(self._nodes, self._touched, strict=True):
            if numbers:
                nodes.setdefault(self._first(numbers[0]), []).append(node)
        return [(one, nodes[head]) for head, one in layers.items() if head in nodes]

    def beside(self) -> tuple[ExecutedNode, ...]:
        """Return the nodes that took some time for no layer."""
        pairs = zip(self._nodes, self._touched, strict=True)
        return tuple(node for node, numbers in pairs if not numbers and node.seconds > 0)

    def _first(self, number: int) -> int:
        while self._head[number] != number:
            number = self._head[number]
        return number
