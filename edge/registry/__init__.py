"""A release in an OCI registry: its name, its artifact, and a client that reads it. Standard library only."""
