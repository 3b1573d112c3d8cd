"""The device end of a connection: a program that lives as long as its stdin. Standard library only."""

from edge.runtime.agent.serve import main

__all__ = ["main"]
