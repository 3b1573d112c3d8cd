"""From a model and images to a calibration table, and to the proof that it keeps the accuracy."""

from edge.quantize.make_table.calibrate import FEW_IMAGES, calibrate
from edge.quantize.make_table.options import (
    Calibration,
    CalibrationHooks,
    CalibrationOptions,
    LibraryCalibrator,
    MaxDrop,
)

__all__ = [
    "FEW_IMAGES",
    "Calibration",
    "CalibrationHooks",
    "CalibrationOptions",
    "LibraryCalibrator",
    "MaxDrop",
    "calibrate",
]
