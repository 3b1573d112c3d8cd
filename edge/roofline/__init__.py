"""Rooflines: the peaks of a machine, and bounds of a model's layers by them."""
