"""Pushing to one target: what it says on the way, and what became of it."""
