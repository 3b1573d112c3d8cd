"""Where Q/DQ pairs go: TensorRT's placement rules, which OpenVINO and ONNX Runtime understand too.

1. Activation and weight of Conv, ConvTranspose, Gemm and MatMul are quantized; their outputs are not, so that the
   activation function that follows stays fused with them.
2. A residual Add fuses with the convolution that makes one of its inputs; the other input is quantized.
3. Concat, MaxPool, nearest Resize, Split and Slice move values or choose among them: they run in INT8, and all tensors
   around them share one scale (`Placement.groups`), or engines would requantize in between. They need no pair of their
   own, a Q behind them moves to their front; only Resize gets one, which TensorRT is not known to do that for.
4. An operator of 2 or 3 is quantized only when no operator reads its result in float: a float operator reads float.

Source: TensorRT developer guide, "Q/DQ Layer-Placement Recommendations"; NVIDIA's YOLOv7 QAT guidance for rule 3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from edge.model.graph import Graph, Node
from edge.model.node import WEIGHTED

__all__ = [
    "WEIGHTED",
    "Edge",
    "Placement",
    "called",
    "gate_of",
    "is_moving",
    "moved_tensors",
    "place",
    "quantizable_tensors",
]

_SELECTING = frozenset(("Split", "Slice"))
_ACTIVATIONS = frozenset(
    ("BatchNormalization", "Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Relu", "Sigmoid")
)

Edge = tuple[int, int]  # position of a node in the file, index of its input


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Operators and tensors to quantize."""

    edges: tuple[Edge, ...]  # the inputs that read INT8, in the order of the file
    pairs: tuple[Edge, ...]  # those of them that a Q/DQ pair has to be put in front of
    residual: tuple[Node, ...]  # the Adds among the nodes at `edges`
    # tensors at the `edges` that share one scale; every such tensor is in exactly one group
    groups: tuple[tuple[str, ...], ...]
    quantized: tuple[Node, ...]  # weighted nodes that run in INT8
    floats: tuple[Node, ...]  # weighted nodes that do not


def called(node: Node) -> str:
    """Return the name of a node; that of its first output where it has none."""
    return node.name or node.outputs[0]


def quantizable_tensors(graph: Graph) -> tuple[str, ...]:
    """Return the tensors whose range has to be known, in the order of the file, whatever is kept in float.

    What Concat, MaxPool, Resize, Split and Slice make is not among them: it holds nothing larger than what goes in.
    """
    placement = place(graph)
    read = dict.fromkeys(graph.nodes[position].inputs[index] for position, index in placement.edges)
    moved = moved_tensors(graph, placement)
    return tuple(name for name in read if name not in moved)


def moved_tensors(graph: Graph, placement: Placement) -> set[str]:
    """Return what operators that move values make in INT8."""
    nodes = (graph.nodes[position] for position, _ in placement.edges)
    return {name for node in nodes if is_moving(node) for name in node.outputs if name}


def place(graph: Graph, keep_float: Collection[str] = ()) -> Placement:
    """`keep_float`: names of nodes that stay in float, and of tensors that are not quantized, nor what reads them."""
    return _Placer(graph, keep_float).placement()


def is_moving(node: Node) -> bool:
    """Return whether every value that `node` makes is one of those that it reads."""
    return node.op_type in _SELECTING or _is_joining(node)


def _commutes(node: Node) -> bool:
    return node.op_type in ("Concat", "MaxPool") or node.op_type in _SELECTING


def _is_joining(node: Node) -> bool:
    if node.op_type in ("Resize", "Upsample"):
        return bool(node.attributes.get("mode", "nearest") == "nearest")
    return node.op_type in ("Concat", "MaxPool")


class _Placer:
    """Decides on weighted nodes, then from the outputs to the inputs: all readers of a tensor before its maker."""

    def __init__(self, graph: Graph, keep_float: Collection[str]) -> None:
        self._graph = graph
        self._positions = {id(node): position for position, node in enumerate(graph.nodes)}
        node_names = {called(node) for node in graph.nodes}
        self._kept_nodes = node_names.intersection(keep_float)
        self._kept_tensors = set(keep_float) - node_names
        self._outputs = {info.name for info in graph.outputs}
        self._edges: set[Edge] = set()
        self._parents: dict[str, str] = {}
        self._quantized: set[int] = set()

    def placement(self) -> Placement:
        graph = self._graph
        for node in graph.nodes:
            if _is_weighted(graph, node):
                self._visit_weighted(node)
        for node in reversed(graph.nodes):
            for name in node.outputs:
                self._pass_selection(name)
            self._visit(node)
        for info in graph.inputs:
            self._pass_selection(info.name)
        weighted = [(i, node) for i, node in enumerate(graph.nodes) if _is_weighted(graph, node)]
        return Placement(
            edges=tuple(sorted(self._edges)),
            pairs=tuple(edge for edge in sorted(self._edges) if not _commutes(graph.nodes[edge[0]])),
            residual=tuple(graph.nodes[i] for i, _ in sorted(self._edges) if graph.nodes[i].op_type == "Add"),
            groups=self._groups(),
            quantized=tuple(node for i, node in weighted if i in self._quantized),
            floats=tuple(node for i, node in weighted if i not in self._quantized),
        )

    def _groups(self) -> tuple[tuple[str, ...], ...]:
        groups: dict[str, list[str]] = {}
        for name in dict.fromkeys(self._graph.nodes[i].inputs[index] for i, index in sorted(self._edges)):
            groups.setdefault(self._root(name), []).append(name)
        return tuple(tuple(names) for names in groups.values())

    def _visit(self, node: Node) -> None:
        if node.op_type == "Add":
            self._visit_add(node)
        elif _is_joining(node):
            data = node.inputs if node.op_type == "Concat" else node.inputs[:1]
            if self._may_quantize(node, data) and self._is_read_in_int8(node.outputs[0]):
                self._quantize(node, range(len(data)), shared=node.outputs[:1])

    def _visit_weighted(self, node: Node) -> None:
        data = [name for name in node.inputs[:2] if self._graph.is_varying(name)]
        if _is_computable(self._graph, node) and self._may_quantize(node, data):
            self._quantized.add(self._positions[id(node)])
            self._quantize(node, [i for i, name in enumerate(node.inputs[:2]) if name in data])

    def _visit_add(self, node: Node) -> None:
        """Quantize the input of a residual Add that does not come from the convolution that it fuses with."""
        if not (self._may_quantize(node, node.inputs) and self._is_read_in_int8(node.outputs[0])):
            return
        fused = [i for i, name in enumerate(node.inputs) if self._is_fused(name)]
        if fused:
            last = max(fused, key=lambda i: self._made_at(node.inputs[i]))
            self._quantize(node, [1 - last])

    def _pass_selection(self, name: str) -> None:
        """Quantize what only Split and Slice read, where all that they choose has one scale already."""
        readers = list(self._readers(name))
        if not readers or any(node.op_type not in _SELECTING or node.inputs[0] != name for node in readers):
            return
        chosen = [out for node in readers for out in node.outputs if out]
        roots = {self._root(out) for out in chosen}
        if (
            len(roots) == 1
            and all(self._may_quantize(node, (name,)) for node in readers)
            and all(self._is_read_in_int8(out) for out in chosen)
        ):
            for node in readers:
                self._quantize(node, (0,), shared=node.outputs)

    def _may_quantize(self, node: Node, data: Collection[str]) -> bool:
        is_kept = called(node) in self._kept_nodes or not self._kept_tensors.isdisjoint(node.inputs)
        return not is_kept and all(self._graph.is_varying(name) for name in data)

    def _is_read_in_int8(self, name: str) -> bool:
        """Return whether `name` is read, and nowhere in float."""
        edges = [
            (self._positions[id(node)], index)
            for node in self._readers(name)
            for index, read in enumerate(node.inputs)
            if read == name
        ]
        return bool(edges) and name not in self._outputs and self._edges.issuperset(edges)

    def _readers(self, name: str) -> Iterator[Node]:
        return (node for node in self._graph.consumers(name) if node.op_type != "Shape")

    def _is_fused(self, name: str) -> bool:
        """Return whether a convolution in INT8 makes `name`, with or without an activation, for one reader only."""
        node = self._graph.producer(name)
        if node is None or name in self._outputs or len(list(self._readers(name))) != 1:
            return False
        while node is not None and self._positions[id(node)] not in self._quantized:
            is_gated = gate_of(self._graph, node) is not None
            if not is_gated and node.op_type not in _ACTIVATIONS:
                return False
            makers = [self._graph.producer(i) for i in node.inputs if self._graph.is_varying(i)]
            node = next((m for m in makers if m is not None and not (is_gated and "Sigmoid" in m.op_type)), None)
        return node is not None and node.op_type in WEIGHTED

    def _made_at(self, name: str) -> int:
        node = self._graph.producer(name)
        return -1 if node is None else self._positions[id(node)]

    def _quantize(self, node: Node, indices: Collection[int], shared: Collection[str] = ()) -> None:
        self._edges.update((self._positions[id(node)], index) for index in indices)
        if shared:
            names = [*(node.inputs[index] for index in indices), *(name for name in shared if name)]
            for name in names[1:]:
                self._parents[self._root(name)] = self._root(names[0])

    def _root(self, name: str) -> str:
        while (parent := self._parents.get(name, name)) != name:
            name = parent
        return name


def _is_weighted(graph: Graph, node: Node) -> bool:
    return node.op_type in WEIGHTED and graph.is_varying(node.outputs[0])


def _is_computable(graph: Graph, node: Node) -> bool:
    """Return whether activation and weight of a node are where engines expect them."""
    is_product = node.op_type == "MatMul" and graph.is_varying(node.inputs[1])
    return graph.is_varying(node.inputs[0]) and (is_product or graph.constant(node.inputs[1]) is not None)


def gate_of(graph: Graph, node: Node) -> Node | None:
    """Return the Sigmoid or HardSigmoid of a tensor that `node` multiplies this very tensor by, as SiLU does."""
    for gate, value in (node.inputs, node.inputs[::-1]) if node.op_type == "Mul" else ():
        maker = graph.producer(gate)
        if maker is not None and maker.op_type in ("Sigmoid", "HardSigmoid") and maker.inputs[0] == value:
            return maker
    return None
