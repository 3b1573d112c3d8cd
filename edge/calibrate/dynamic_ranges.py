"""Dynamic ranges of a table (`edge.ranges/1`), for `ITensor.set_dynamic_range` and for tools that take ranges.

    {"format": "edge.ranges/1",
     "ranges": {
      "images": [-0.9999999962747097, 0.9999999962747097]
     },
     "keep_float": []}

A range is -127 and 127 times the float32 scale, multiplied in float64, where that is exact; handed to TensorRT, which
takes float32, it is rounded once, as the product of a user's own is. Dividing by 127 gives the scale back.
"""

from __future__ import annotations

from edge.calibrate.layout import block, one_line
from edge.calibrate.scale import LEVELS, Scale
from edge.calibrate.table import CalibrationTable
from edge.errors import CalibrationError

__all__ = ["FORMAT", "dynamic_ranges", "ranges_text"]

FORMAT = "edge.ranges/1"
_LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127


def ranges_text(table: CalibrationTable) -> str:
    """Return the file's content: equal tables give equal bytes; one tensor per line, sorted by name.

    Raises:
        CalibrationError: as `dynamic_ranges`.
    """
    rows = (f"{one_line(name)}: {one_line(ends)}" for name, ends in dynamic_ranges(table).items())
    kept = map(one_line, sorted(table.keep_float))
    return f'{{"format": {one_line(FORMAT)},\n "ranges": {block("{}", rows)},\n "keep_float": {block("[]", kept)}}}\n'


def dynamic_ranges(table: CalibrationTable) -> dict[str, tuple[float, float]]:
    """Return the smallest and the largest value of each tensor, in its own unit, sorted by name.

    Raises:
        CalibrationError: naming the tensor, if a scale is zero, negative, infinite or NaN, or 127 times it is more than
            float32 holds.
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
