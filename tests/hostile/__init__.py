"""Inputs that no command may be at a loss for: `rows` is the table, `files` makes what it names.

Whoever finds another one adds a row, and the file that it needs.
"""
