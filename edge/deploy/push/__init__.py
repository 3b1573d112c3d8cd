"""The client of a push: one target, from its plan to the verdict."""
