"""From a model and images to a calibration table, and to the proof that it keeps the accuracy."""

from edge.quantize.make_table.calibrate import FEW_IMAGES, Calibration, calibrate
from edge.quantize.make_table.subject import CalibrationOptions, LibraryCalibrator, MaxDrop

__all__ = ["FEW_IMAGES", "Calibration", "CalibrationOptions", "LibraryCalibrator", "MaxDrop", "calibrate"]
