"""The values that a graph is made of: an operator, and an input or output as it is declared; kinds of operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["INTEGER_OPERATORS", "POINTWISE", "QDQ_OPERATORS", "WEIGHTED", "Dim", "Node", "TensorInfo"]

Dim = int | str | None

# fmt: off
POINTWISE = frozenset((
    "Abs", "Add", "And", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater",
    "HardSigmoid", "HardSwish", "LeakyRelu", "Less", "Log", "Max", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or",
    "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sin", "Softplus", "Sqrt", "Sub", "Tanh",
    "Where",
))
"""Operators that work out each value from the values at its place."""

QDQ_OPERATORS = ("QuantizeLinear", "DequantizeLinear")
INTEGER_OPERATORS = (
    "QLinearConv",
    "QLinearMatMul",
    "QLinearAdd",
    "QGemm",
    "ConvInteger",
    "MatMulInteger",
    "DynamicQuantizeLinear",
)
WEIGHTED = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
"""Operators whose work is multiply-accumulates."""
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """An input or output as the file declares it; a dimension is a number, a name, or None when it says neither."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f'"{self.name}" {self.dtype} ({dims})'


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operator of the graph; `inputs` holds "" where an optional input is left out."""

    op_type: str
    name: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    def input(self, index: int) -> str:
        """Return the name of input `index`, "" when it is not given."""
        return self.inputs[index] if index < len(self.inputs) else ""
