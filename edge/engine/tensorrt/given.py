"""A model that is given as it is to be built: in float, or with its Q/DQ pairs."""

from __future__ import annotations

from collections.abc import Mapping

from edge.engine.kind import QdqForm
from edge.errors import CalibrationError
from edge.model.qdq.insert import QdqModel
from edge.types import ModelSpec

__all__ = ["GivenModel"]


class GivenModel:
    """`edge.engine.kind.ModelForms` of which there is one form.

    Args:
        spec: what the model is; quantized where the file carries Q/DQ pairs.
        content: the file.
    """

    def __init__(self, spec: ModelSpec, content: bytes) -> None:
        self._spec, self._content = spec, content

    @property
    def spec(self) -> ModelSpec:
        """What the model's file is."""
        return self._spec

    def float_model(self, *, is_float16: bool = False) -> bytes:
        """Return the file; only in the precision that it has is it asked for."""
        assert not is_float16, "a model that is given as it is has no other type"
        return self._content

    def qdq_model(self, form: QdqForm) -> QdqModel:
        """Return the file, in whichever form its pairs are: what a TensorRT does not take, it refuses by name."""
        return QdqModel(model=self._content, quantized_nodes=(), float_nodes=(), mac_share_int8=0.0, ranges={})

    @property
    def ranges(self) -> Mapping[str, float] | None:
        """None: there is no table."""
        return None

    @property
    def keep_float(self) -> tuple[str, ...]:
        """None: there is no table."""
        return ()

    @property
    def beyond_ranges(self) -> tuple[str, ...]:
        """None: there is no table."""
        return ()

    def calibration_cache(self, *, version: int, calibrator: str) -> bytes:
        """Refuse."""
        raise CalibrationError(f"{self._spec.name}: there is no table to write a calibration cache of")
