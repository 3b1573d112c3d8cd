"""Between the calibration table and what others keep ranges in: TensorRT's calibration cache, Q/DQ pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from edge.calibrate.cache import CalibrationCache
from edge.calibrate.scale import Scale
from edge.calibrate.table import CalibrationTable, Imported, MadeBy, ModelId, TensorRange
from edge.types import ModelSpec

__all__ = ["DEFAULT_CALIBRATOR", "DEFAULT_TENSORRT", "cache_from_table", "table_from_cache", "table_from_qdq"]

DEFAULT_TENSORRT = "10.3.0"  # JetPack 6.1 and 6.2
DEFAULT_CALIBRATOR = "EntropyCalibration2"  # the only one that the DLA takes
_IMPORTED = "imported"
_QDQ = "qdq"


def table_from_cache(cache: CalibrationCache, spec: ModelSpec | None) -> CalibrationTable:
    """Return a table from which the same cache can be made again.

    Args:
        spec: the model that the cache is said to be of; None leaves the table bound to no model.
    """
    return CalibrationTable(
        model=None if spec is None else ModelId(name=spec.name, sha256=spec.sha256),
        preprocess=None if spec is None else spec.preprocess.as_json(),
        preprocess_sha256=None if spec is None else spec.preprocess.sha256,
        dataset=None,
        method=_IMPORTED,
        made_by=MadeBy(engine=f"tensorrt {cache.tensorrt}"),
        tensors={name: _range(scale, _IMPORTED) for name, scale in cache.scales.items()},
        imported=Imported(tensorrt=cache.tensorrt, calibrator=cache.calibrator),
    )


def cache_from_table(
    table: CalibrationTable, *, tensorrt: str | None = None, calibrator: str | None = None
) -> CalibrationCache:
    """Return a cache with the scale of each tensor, sorted by name.

    Args:
        tensorrt: version that is to read it; None: that of the cache which the table was imported from, or 10.3.0.
        calibrator: likewise.
    """
    origin = table.imported or Imported(tensorrt=DEFAULT_TENSORRT, calibrator=DEFAULT_CALIBRATOR)
    return CalibrationCache(
        tensorrt=tensorrt or origin.tensorrt,
        calibrator=calibrator or origin.calibrator,
        scales={name: table.tensors[name].scale for name in sorted(table.tensors)},
    )


def table_from_qdq(
    ranges: Mapping[str, float], spec: ModelSpec, *, keep_float: tuple[str, ...], source: str
) -> CalibrationTable:
    """Return the table of a Q/DQ model, bound to its float model.

    Args:
        ranges: largest absolute activation by tensor; the float32 scales that follow from them are kept to the bit.
        spec: the float model.
        keep_float: nodes that the Q/DQ model computes in float.
        source: name of the Q/DQ model's file.
    """
    return CalibrationTable(
        model=ModelId(name=spec.name, sha256=spec.sha256),
        preprocess=spec.preprocess.as_json(),
        preprocess_sha256=spec.preprocess.sha256,
        dataset=None,
        method=_QDQ,
        made_by=MadeBy(engine=f"imported from {source}"),
        tensors={name: _range(Scale.from_amax(amax), _QDQ) for name, amax in ranges.items()},
        keep_float=keep_float,
    )


def _range(scale: Scale, method: str) -> TensorRange:
    amax = scale.amax
    is_enough = not math.isnan(amax) and Scale.from_amax(amax) == scale  # there are many NaNs, and one word for them
    return TensorRange(amax=amax, method=method, scale_hex=None if is_enough else scale.hex)
