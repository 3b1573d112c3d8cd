"""Mutation of what makes a device safe: each step and each check taken away in turn, and the test that notices."""
