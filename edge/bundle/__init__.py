"""A release as one signed folder: its files, its signature, the devices it may run on. Standard library only."""
