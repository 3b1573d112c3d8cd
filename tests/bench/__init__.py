"""Benchmarks: `make bench` measures and writes docs/benchmarks.md. Nothing here is collected by pytest."""
