"""Ranges of activations: histograms, thresholds, the calibration table, and the formats derived from it."""
