"""From and to the calibration table: TensorRT's calibration cache, Q/DQ pairs, dynamic ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping

from edge.calibrate.cache import LEVELS, CalibrationCache, Scale
from edge.calibrate.table import CalibrationTable, Imported, MadeBy, ModelId, TensorRange, block, one_line
from edge.errors import CalibrationError
from edge.types import ModelSpec

__all__ = [
    "DEFAULT_CALIBRATOR",
    "DEFAULT_TENSORRT",
    "FORMAT",
    "cache_from_table",
    "dynamic_ranges",
    "ranges_text",
    "table_from_cache",
    "table_from_qdq",
]

DEFAULT_TENSORRT = "10.3.0"  # JetPack 6.1 and 6.2
DEFAULT_CALIBRATOR = "EntropyCalibration2"  # the only one that the DLA takes
_IMPORTED = "imported"
_QDQ = "qdq"


def table_from_cache(cache: CalibrationCache, spec: ModelSpec | None) -> CalibrationTable:
    """Return a table from which the same cache can be made again; `spec` None leaves it bound to no model."""
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

    `tensorrt`: version that is to read it; None: that of the cache which the table was imported from, or 10.3.0.
    `calibrator`: that it is written for; None likewise.
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

    `ranges`: largest absolute activation by tensor; the float32 scales that follow from them are kept to the bit.
    `spec`: the float model. `keep_float`: nodes that the Q/DQ model computes in float. `source`: name of the Q/DQ
    model's file.
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


FORMAT = "edge.ranges/1"
_LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127


def ranges_text(table: CalibrationTable) -> str:
    """Return the content of a file of ranges: equal tables give equal bytes; one tensor per line, sorted by name.

        {"format": "edge.ranges/1",
         "ranges": {
          "images": [-0.9999999962747097, 0.9999999962747097]
         },
         "keep_float": []}

    For `ITensor.set_dynamic_range`, and tools that take ranges. Raises `CalibrationError` as `dynamic_ranges`.
    """
    rows = (f"{one_line(name)}: {one_line(ends)}" for name, ends in dynamic_ranges(table).items())
    kept = map(one_line, sorted(table.keep_float))
    return f'{{"format": {one_line(FORMAT)},\n "ranges": {block("{}", rows)},\n "keep_float": {block("[]", kept)}}}\n'


def dynamic_ranges(table: CalibrationTable) -> dict[str, tuple[float, float]]:
    """Return the smallest and the largest value of each tensor, in its own unit, sorted by name.

    They are -127 and 127 times the float32 scale, multiplied in float64, where that is exact; handed to TensorRT, which
    takes float32, it is rounded once, as the product of a user's own is. Dividing by 127 gives the scale back.
    Raises `CalibrationError` naming the tensor, if a scale is zero, negative, infinite or NaN, or 127 times it is more
    than float32 holds.
    """
    return {name: _ends(name, table.tensors[name].scale) for name in sorted(table.tensors)}


def _ends(name: str, scale: Scale) -> tuple[float, float]:
    largest = LEVELS * scale.value
    if not scale.is_usable or largest > _LARGEST_FLOAT32:
        raise CalibrationError(
            f'tensor "{name}": expected a finite range above 0, got scale {scale.value:g}',
            hint="see edge-deploy table lint; calibrate again, or remove it from the table, which keeps it in float",
        )
    return -largest, largest
