"""The whole service for long, while everything around it is broken on purpose: `make soak`."""
