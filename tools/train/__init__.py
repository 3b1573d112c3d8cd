"""Training of the demo model: needs torch."""
