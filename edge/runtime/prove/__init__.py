"""Proves a machine step by step, each in a process of its own, and writes one file."""
