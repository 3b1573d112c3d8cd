"""A device fetches its release from a registry: the same questions to the same agent as those of a push."""
