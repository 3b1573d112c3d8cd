"""Models as exporters write them: a builder of our own, and what the product has to make of each."""
