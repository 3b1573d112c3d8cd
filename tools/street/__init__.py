"""Synthetic streets: what is in them, how it is drawn, and exactly where each object is."""
