"""A release as one signed folder: its manifest, its files, its signature, its bounds. Standard library only."""
