"""Wire messages, and the ways by which they leave the device."""
