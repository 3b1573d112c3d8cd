"""The running service: a release or a pipeline file, its parts, its signs of life."""
