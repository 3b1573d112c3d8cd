"""Which layers of a plan compute in which precision, as TensorRT's inspector tells; 11 changed its JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["PlanAccount", "plan_account_of"]

_FLOAT32, _FLOAT16, _INT8 = "fp32", "fp16", "int8"
# "Format/Datatype" of an output: "Channel major FP32 format ...", "Thirty-two wide channel vectorized row major Int8
# format"; since 11 a datatype of its own.
_WORDS = ((_INT8, r"int8"), (_FLOAT16, r"fp16|half|float16|bf16"), (_FLOAT32, r"fp32|float32|\bfloat\b"))
_MOVES = ("Reformat", "NoOp", "Shuffle", "Constant", "signal", "wait")
_OPTIMISED_KERNEL = re.compile(r"i8i8|imma|int8|_i8|s8s8", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAccount:
    """Layers of a plan by precision; `reformats` only move data."""

    by_precision: Mapping[str, int]
    reformats: int
    layers: tuple[tuple[str, str], ...]

    @property
    def line(self) -> str:
        """For people: `51 layers int8, 12 fp16; 4 reformats`."""
        known = [
            f"{self.by_precision[name]} {name}"
            for name in (_INT8, _FLOAT16, _FLOAT32, "?")
            if self.by_precision.get(name)
        ]
        return f"layers {', '.join(known) or 'unknown'}; {self.reformats} reformats"

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "line": self.line,
            "by_precision": dict(self.by_precision),
            "reformats": self.reformats,
            "layers": [{"name": name, "precision": precision} for name, precision in self.layers],
        }


def plan_account_of(text: str) -> PlanAccount | None:
    """Return the account in the inspector's JSON; None where it holds no layers."""
    try:
        layers = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    read = [layer for layer in layers if isinstance(layer, dict)] if isinstance(layers, list) else []
    if not read:  # without detailed verbosity there are names only
        return None
    moves = [layer for layer in read if str(layer.get("LayerType", "")).startswith(_MOVES)]
    works = [(str(layer.get("Name", "?")), _precision(layer)) for layer in read if layer not in moves]
    return PlanAccount(
        by_precision=dict(Counter(precision for _, precision in works)),
        reformats=len(moves),
        layers=tuple(works),
    )


def _precision(layer: Mapping[str, object]) -> str:
    """Return what a layer computes in: the tactic's name tells INT8, else the types of what it reads do."""
    if _OPTIMISED_KERNEL.search(str(layer.get("TacticName", ""))):
        return _INT8
    for key in ("Inputs", "Outputs"):
        found = {word for tensor in _listed(layer.get(key)) for word in _words(tensor)}
        for precision, _ in _WORDS:
            if precision in found:
                return precision
    return "?"


def _listed(value: object) -> Iterable[Mapping[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _words(tensor: Mapping[str, object]) -> Iterable[str]:
    told = " ".join(
        str(tensor.get(key, "")) for key in ("Format/Datatype", "Datatype", "DataType", "Data Type", "Format")
    )
    return [name for name, pattern in _WORDS if re.search(pattern, told, re.IGNORECASE)]
