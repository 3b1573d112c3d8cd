"""Frames in flight: pulled, batched, inferred, counted."""
