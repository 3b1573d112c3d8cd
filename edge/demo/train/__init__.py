"""Training of the demo model: needs the `train` extra (torch); nothing else in the package imports this."""
