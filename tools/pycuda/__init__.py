"""Wheels of pycuda for Jetsons, made on a workstation: no GPU, no board, no CUDA toolkit."""
