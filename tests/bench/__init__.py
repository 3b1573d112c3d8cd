"""Benchmarks: `make bench` measures and writes out/benchmarks.md. Nothing here is collected by pytest."""
