"""A release as one signed folder: what it holds, who vouches for it, where it may run. Standard library only."""
