"""Which nodes of the ONNX file went into a layer of an engine, as TensorRT's inspector tells of each.

TensorRT fuses, and splits: the unit that it times is a layer of its own. Since 8.6 its parser writes into each layer
which node it came from, and the builder keeps that through its fusions: `[ONNX Layer: a]`, joined by the characters
0x1E and 0x1F. Where there is no such entry the layer's name is taken apart. What neither tells is not guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

__all__ = ["LayerOrigin", "Origins", "nodes_of_layer"]

_BEGIN, _END = "[ONNX Layer: ", "]"
_SEPARATORS = re.compile("[\x1e\x1f]")
# "a + b": one behind the other; "a || b": convolutions of one input, made one; "PWN(a, b)": what is pointwise.
_JOINED = re.compile(r" \+ | \|\| |, |PWN\(")
_UNNAMED = "node_of_"  # what the parser puts before an output, for a node without a name
_ADDED = ("Reformatting CopyNode",)  # named after the layer that it is for
_REGION = "{ForeignNode["  # of Myelin, or a DLA core: from its first node to its last, those between are not told


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOrigin:
    """A layer of an engine.

    Attributes:
        kind: what it is there, with its tactic where that is told: `CaskConvolution sm80_xmma_fprop...`.
        nodes: of the ONNX file, of those that were asked for.
    """

    kind: str
    nodes: frozenset[str]


class Origins:
    """The layers of an engine, as its inspector tells them.

    Args:
        text: what the inspector tells as JSON. TensorRT 8 to 11 differ, and an engine that was not built to be looked
            into has names only.
        names: of nodes of the ONNX file; those without a name are called after their first output.
    """

    def __init__(self, text: str, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._known: dict[str, LayerOrigin] = {}
        for name, kind, metadata in _told(text):
            before = self._known[name].nodes if name in self._known else frozenset()
            self._known[name] = LayerOrigin(kind=kind, nodes=before | self._nodes(name, metadata))

    def of(self, layer: str) -> LayerOrigin:
        """Return what a layer is, of several with its name together; by its name alone where the inspector has none."""
        return self._known.get(layer) or LayerOrigin(kind="layer", nodes=self._nodes(layer, ""))

    def _nodes(self, layer: str, metadata: str) -> frozenset[str]:
        told = nodes_of_layer(layer, metadata)
        return self._names.intersection(told) | self._names.intersection(one.removeprefix(_UNNAMED) for one in told)


def nodes_of_layer(name: str, metadata: str) -> list[str]:
    """Return the nodes that a layer came from, as its entry tells, else its name; none where neither tells them all."""
    if name.startswith(_ADDED):
        return []
    if metadata:
        parts = _SEPARATORS.split(metadata)
        return [one[len(_BEGIN) : -len(_END)] for one in parts if one.startswith(_BEGIN) and one.endswith(_END)]
    if _REGION in name:
        return []
    return [part.strip().rstrip(")") for part in _JOINED.split(name) if part]


def _told(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, kind and metadata of each layer."""
    try:
        layers = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, str):
            yield layer, "layer", ""
        elif isinstance(layer, Mapping):
            kind = " ".join(str(layer[key]) for key in ("LayerType", "TacticName") if layer.get(key))
            yield str(layer.get("Name", "?")), kind or "layer", str(layer.get("Metadata", ""))
