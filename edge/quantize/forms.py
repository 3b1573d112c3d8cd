"""One model in each of the forms that a kind of engine may ask for: read once, each form made when first asked for."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from edge.calibrate.cache import CalibrationCache, cache_text
from edge.calibrate.convert import cache_from_table
from edge.calibrate.table import CalibrationTable
from edge.engine.kind import QdqForm
from edge.errors import CalibrationError, ModelError
from edge.model.graph import Graph, ModelFile, graph_from_bytes, read_model_file
from edge.model.qdq.half import float16_model
from edge.model.qdq.insert import QdqModel, insert_qdq
from edge.model.qdq.read import int8_mac_share, read_qdq
from edge.types import ModelSpec

__all__ = ["Forms"]

_CENTRES = "the centres of the table: steps are up to twice as large as those of its evidence"
_MEANS = "the corrections of biases by the means of the table"


class Forms:
    """`edge.engine.kind.ModelForms` of a model and, for INT8 of a float model, a usable calibration table.

    `table`: None: it runs in float, or by the Q/DQ pairs that it carries. `file`: that `spec` is of; None: it is read
    when something is first asked for. `means`: of channels, by which biases are corrected; None: those of the table.
    """

    def __init__(
        self,
        spec: ModelSpec,
        table: CalibrationTable | None = None,
        *,
        file: ModelFile | None = None,
        means: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        self.spec = spec
        self._table = table
        self._means = means
        self._read = file
        self._float16: bytes | None = None
        self._qdq: dict[QdqForm, QdqModel] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the forms that were made so far."""
        return functools.partial(Forms, file=self._file, means=self._means), (self.spec, self._table)

    @property
    def graph(self) -> Graph:
        return self._file.graph

    def by(self, table: CalibrationTable, *, means: Mapping[str, Sequence[float]] | None = None) -> Forms:
        """Return the forms of the same model, which is not read again, by another table; `means` as above."""
        return Forms(self.spec, table, file=self._file, means=means)

    def reference(self) -> Forms:
        """Return the forms of the float model that INT8 is held against: this one, its own Q/DQ pairs taken out.
        Raises `ModelError` if pairs cannot be taken out.
        """
        if not self.spec.is_quantized:
            return self
        _, content, _ = read_qdq(self.spec.path, self.graph)
        graph = graph_from_bytes(content, f"the float model of {self.spec.path}")
        sha256 = hashlib.sha256(content).hexdigest()
        spec = dataclasses.replace(self.spec, sha256=sha256, is_quantized=False)
        return Forms(spec, file=ModelFile(path=spec.path, sha256=sha256, content=content, graph=graph))

    def float_model(self, *, is_float16: bool = False) -> bytes:
        if not is_float16:
            return self._file.content
        if self._float16 is None:
            self._float16 = float16_model(self.graph, self.spec.name)
        return self._float16

    def qdq_model(self, form: QdqForm) -> QdqModel:
        if form not in self._qdq:
            self._qdq[form] = self._carried if self.spec.is_quantized else self._made(form)
        return self._qdq[form]

    @property
    def mac_share_int8(self) -> float:
        """Share of the multiply-accumulates in INT8, which no form changes: one that an engine has made is asked."""
        made = next(iter(self._qdq.values()), None) or self.qdq_model(QdqForm())
        return made.mac_share_int8

    @property
    def ranges(self) -> Mapping[str, float] | None:
        return None if self._table is None else {name: one.amax for name, one in self._table.tensors.items()}

    @property
    def keep_float(self) -> tuple[str, ...]:
        return () if self._table is None else tuple(self._table.keep_float)

    @property
    def has_centres(self) -> bool:
        return self._table is not None and self._table.centred

    @property
    def beyond_ranges(self) -> tuple[str, ...]:
        if self._table is None:
            return ()
        parts = ((_CENTRES, self._table.centred), (_MEANS, any(one.means for one in self._table.tensors.values())))
        return tuple(part for part, is_there in parts if is_there)

    def calibration_cache(self, *, version: int, calibrator: str) -> bytes:
        made = cache_from_table(self._required(), calibrator=calibrator)
        text = cache_text(CalibrationCache(tensorrt=made.tensorrt, calibrator=calibrator, scales=made.scales))
        return f"TRT-{version}-{calibrator}\n{text.partition(chr(10))[2]}".encode()

    @functools.cached_property
    def _file(self) -> ModelFile:
        file = self._read or read_model_file(self.spec.path)
        if file.sha256 != self.spec.sha256:
            raise ModelError(f"{file.path}: has changed since it was looked at", hint="run the command again")
        return file

    @functools.cached_property
    def _carried(self) -> QdqModel:
        """The model as it is, with the pairs that it carries, whatever form is asked for."""
        share = int8_mac_share(self.graph, self.spec)
        return QdqModel(model=self._file.content, quantized_nodes=(), float_nodes=(), mac_share_int8=share, ranges={})

    def _made(self, form: QdqForm) -> QdqModel:
        table = self._required()
        means = {name: tensor.means for name, tensor in table.tensors.items() if tensor.means}
        return insert_qdq(
            self.graph,
            self.spec,
            ranges={name: tensor.amax for name, tensor in table.tensors.items()},
            keep_float=table.keep_float,
            means=means if self._means is None else self._means,
            is_centred=table.centred and form.has_centres,
            is_padded=table.padded,
            has_zero_points=form.activations == "uint8",
            is_float16=form.float_type == "float16",
            has_float_weights=form.weights == "float",
        )

    def _required(self) -> CalibrationTable:
        if self._table is None:
            raise CalibrationError(
                f"precision int8: {self.spec.name} is a float model; INT8 without a calibration table is never run",
                hint="name a table (edge-deploy calibrate), or use fp32",
            )
        return self._table
