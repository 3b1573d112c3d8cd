"""Pushing to many targets: waves, a limit of failures, a journal to go on from."""
