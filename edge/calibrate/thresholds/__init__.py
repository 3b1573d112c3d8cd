"""Which range a histogram deserves: one module for each method, all from the histogram alone."""
