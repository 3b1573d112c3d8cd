"""What a machine can do at most, and what follows from that for the layers of a model."""
