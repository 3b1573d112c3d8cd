"""Objects over the frames of one stream, and what they do: pure numpy, no I/O, no clock."""
