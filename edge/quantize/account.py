"""The account of a model in each precision that an engine may run it in; in INT8 by a table, or as far as can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge.calibrate.lint import usable_table
from edge.engine.kind import QdqForm
from edge.errors import ModelError
from edge.model.account import account_of_model
from edge.model.graph import Graph, ModelFile, graph_from_bytes, read_model_file
from edge.model.inspect import inspect_file
from edge.model.layer_account import ModelAccount
from edge.model.qdq.insert import insert_qdq
from edge.model.qdq.placement import quantizable_tensors
from edge.quantize.forms import Forms
from edge.types import ModelSpec, Precision

__all__ = ["PrecisionAccounts", "accounts_of"]

_FLOATS = (Precision.FP32, Precision.FP16)
_REMAINDER = Precision.FP16  # of GPUs, for layers that INT8 leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionAccounts:
    """One model, counted."""

    spec: ModelSpec
    table: Path | None  # that INT8 follows; None: the pairs that the model carries, or everything that can be quantized
    by_precision: Mapping[Precision, ModelAccount]  # slowest first; a model that carries Q/DQ pairs has no float ones
    why_no_int8: str | None = None  # None where INT8 is among them
    most_int8: ModelAccount | None = None  # where there is a table: the model with all in INT8 that can be; else None

    @property
    def origin_of_int8(self) -> str:
        """Say which layers INT8 is counted for."""
        if self.table is not None:
            return f"by {self.table.name}"
        if self.spec.is_quantized:
            return "by the Q/DQ pairs of the model"
        return "if every layer that can be quantized were; a table may keep some in float"


def accounts_of(model: Path, *, table: Path | None, batch: int | None) -> PrecisionAccounts:
    """`batch`: frames at once; None: what the model is fixed to, else one.
    Raises `EdgeError` if model or table cannot be used, or the model cannot take the batch.
    """
    file = read_model_file(model)
    spec = inspect_file(file)
    rows = spec.batch or 1 if batch is None else batch
    graphs = {} if spec.is_quantized else dict.fromkeys(_FLOATS, file.graph)
    int8, why_no_int8 = (_by_table(file, spec, table), None) if table is not None else _as_far_as_can_be(file, spec)
    if int8 is not None:
        graphs[Precision.INT8] = int8
    most = None if table is None else _as_far_as_can_be(file, spec)[0]
    return PrecisionAccounts(
        spec=spec,
        table=table,
        by_precision={
            kind: account_of_model(graph, spec, batch=rows, float_type=_REMAINDER if kind is Precision.INT8 else kind)
            for kind, graph in graphs.items()
        },
        why_no_int8=why_no_int8,
        most_int8=None if most is None else account_of_model(most, spec, batch=rows, float_type=_REMAINDER),
    )


def _by_table(file: ModelFile, spec: ModelSpec, table: Path) -> Graph:
    forms = Forms(spec, usable_table(table, spec, file.graph), file=file)
    return graph_from_bytes(forms.qdq_model(QdqForm()).model, str(table))


def _as_far_as_can_be(file: ModelFile, spec: ModelSpec) -> tuple[Graph | None, str | None]:
    """Return the model with pairs wherever they can be, its own or made here; or why there is none."""
    if spec.is_quantized:
        return file.graph, None
    ranges = dict.fromkeys(quantizable_tensors(file.graph), 1.0)  # where the pairs are counts, not what they hold
    try:
        made = insert_qdq(file.graph, spec, ranges=ranges, keep_float=())
    except ModelError as error:
        return None, str(error)
    return graph_from_bytes(made.model, spec.name), None
