"""What leaves the device: the wire messages and the ways they travel."""
