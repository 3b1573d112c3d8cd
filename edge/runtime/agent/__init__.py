"""The device end of a connection: a program that lives as long as its stdin. Standard library only."""
