"""What is wrong with a calibration table, and what to do about it."""
