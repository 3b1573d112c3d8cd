"""The pipeline file: its schema, and strict loading with errors that point at the line."""
