"""Wire messages, the ways by which they leave the device, and those who read them."""
