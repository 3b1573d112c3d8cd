"""From a model and images to a calibration table, and to the proof that it keeps the accuracy."""

from edge.deploy.calibration.calibrate import Calibration, CalibrationOptions, Unproven, calibrate

__all__ = ["Calibration", "CalibrationOptions", "Unproven", "calibrate"]
