"""Chooses the wheels of devices anew: `make lock`."""
