"""The pictures of README and docs, made of what the product itself shows: `make pictures`."""
