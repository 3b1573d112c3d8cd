"""One model in each of the forms that a kind of engine may ask for, made when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from edge.calibrate.apply import quantized_model
from edge.calibrate.cache import CalibrationCache, cache_text
from edge.calibrate.convert import cache_from_table
from edge.calibrate.table import CalibrationTable
from edge.engine.kind import QdqForm
from edge.errors import CalibrationError, ModelError
from edge.model.graph import load_graph
from edge.model.qdq.insert import QdqModel
from edge.model.qdq.share import int8_mac_share
from edge.types import ModelSpec

__all__ = ["Forms"]


class Forms:
    """`edge.engine.kind.ModelForms` of a model and, for INT8 of a float model, a usable calibration table."""

    def __init__(self, spec: ModelSpec, table: CalibrationTable | None = None) -> None:
        self._spec = spec
        self._table = table
        self._qdq: dict[QdqForm, QdqModel] = {}

    @property
    def spec(self) -> ModelSpec:
        """What the model's file is."""
        return self._spec

    @cached_property
    def _content(self) -> bytes:
        try:
            return self._spec.path.read_bytes()
        except OSError as error:
            raise ModelError(f"{self._spec.path}: cannot be read: {error.strerror}") from None

    def float_model(self, *, is_float16: bool = False) -> bytes:
        """Return the ONNX as it is."""
        if is_float16:
            raise ModelError(f"{self._spec.name}: is not converted to float16 by this version")
        return self._content

    def qdq_model(self, form: QdqForm) -> QdqModel:
        """Return the ONNX with Q/DQ pairs."""
        if form not in self._qdq:
            self._qdq[form] = self._made(form)
        return self._qdq[form]

    @property
    def ranges(self) -> Mapping[str, float] | None:
        """Largest absolute activation by tensor."""
        return None if self._table is None else {name: one.amax for name, one in self._table.tensors.items()}

    @property
    def keep_float(self) -> tuple[str, ...]:
        """What the table leaves in float."""
        return () if self._table is None else tuple(self._table.keep_float)

    def calibration_cache(self, *, version: int, calibrator: str) -> bytes:
        """Return the table as a calibration cache."""
        made = cache_from_table(self._required(), calibrator=calibrator)
        text = cache_text(CalibrationCache(tensorrt=made.tensorrt, calibrator=calibrator, scales=made.scales))
        return f"TRT-{version}-{calibrator}\n{text.partition(chr(10))[2]}".encode()

    def _made(self, form: QdqForm) -> QdqModel:
        if self._spec.is_quantized:
            share = int8_mac_share(load_graph(self._spec.path), self._spec)
            return QdqModel(model=self._content, quantized_nodes=(), float_nodes=(), mac_share_int8=share, ranges={})
        return quantized_model(self._required(), self._spec, is_float16=form.float_type == "float16")

    def _required(self) -> CalibrationTable:
        if self._table is None:
            raise CalibrationError(
                f"precision int8: {self._spec.name} is a float model; INT8 without a calibration table is never run",
                hint="name a table (edge-deploy calibrate), or use fp32",
            )
        return self._table
