"""CUDA: kernels, memory, streams and graphs for the engines that compute on an NVIDIA GPU."""
