"""Pure functions on pixels and boxes: numpy in, numpy out; no I/O, no clock."""
