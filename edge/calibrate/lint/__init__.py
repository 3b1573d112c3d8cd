"""Faults of a calibration table, and what to do about them."""
