"""The calibration table: largest absolute activations by tensor name, and where they come from.

scale = amax / 127, symmetric, int8, zero point 0. Whether ranges make sense is not checked here but in
`edge.calibrate.lint`; the file is `edge.calibrate.table_file`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from edge.calibrate.scale import Scale
from edge.version import __version__

__all__ = [
    "CalibrationTable",
    "DatasetId",
    "Evidence",
    "Imported",
    "MadeBy",
    "ModelId",
    "TensorRange",
]


class ModelId(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ONNX file that the tensors are of."""

    name: str
    sha256: str


class DatasetId(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The images that were looked at."""

    images: int
    sha256: str


class MadeBy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Software that found the ranges; `engine` is what exposed the activations."""

    edge: str = __version__
    engine: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How good INT8 with this table was, against float, 0 to 1; `uncertainty` is the standard error of the difference.

    It is None where no labels were given, and in older tables.
    """

    metric: str
    images: int
    float_: float = msgspec.field(name="float")
    int8: float
    int8_mac_share: float
    uncertainty: float | None = None

    @property
    def drop(self) -> float:
        """How much INT8 loses, in mAP points (hundredths)."""
        return 100 * (self.float_ - self.int8)


class Imported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The calibration cache that the table was read from, so that the same one can be written again."""

    tensorrt: str
    calibrator: str


class TensorRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Largest absolute activation of one tensor, and how it was chosen.

    `scale_hex` is only there where amax / 127 does not give the scale of an imported cache to the bit (NaN).
    `means` are of its channels, where they were looked at: by them a Q/DQ model corrects the biases of what reads it.
    """

    amax: float
    method: str
    scale_hex: str | None = None
    means: tuple[float, ...] = ()

    @property
    def scale(self) -> Scale:
        """The float32 nearest to amax / 127."""
        return Scale(self.scale_hex) if self.scale_hex is not None else Scale.from_amax(self.amax)

    @property
    def is_usable(self) -> bool:
        """Whether a tensor can be quantized with it."""
        return self.scale.is_usable


class CalibrationTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ranges by tensor name, and where they come from; what is None was not known, as in an imported cache.

    `centred`: a Q/DQ model quantizes what has a lowest value, as SiLU has, around a centre (`edge.model.qdq.centre`);
    `padded`: so it does where a padded convolution reads it, too.
    `float_reasons` says of nodes in `keep_float` why they are there, where that is known.
    """

    model: ModelId | None
    preprocess: dict[str, Any] | None
    preprocess_sha256: str | None
    dataset: DatasetId | None
    method: str
    made_by: MadeBy
    tensors: Mapping[str, TensorRange]
    centred: bool = False
    padded: bool = False
    keep_float: tuple[str, ...] = ()
    float_reasons: Mapping[str, str] = msgspec.field(default_factory=dict)
    evidence: Evidence | None = None
    imported: Imported | None = None
