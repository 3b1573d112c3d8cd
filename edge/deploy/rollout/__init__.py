"""A rollout over the rings of a registry: heard from the broker, kept in the registry, moved by tags."""
