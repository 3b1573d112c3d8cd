"""Explicit Q/DQ ONNX: written from ranges, and read back into ranges and a float model."""

from edge.model.qdq.bias import corrected_tensors
from edge.model.qdq.emulated import with_float_arithmetic
from edge.model.qdq.insert import QdqModel, insert_qdq
from edge.model.qdq.placement import quantizable_tensors
from edge.model.qdq.read import read_qdq
from edge.model.qdq.share import int8_mac_share
from edge.model.qdq.unsigned import with_uint8_activations

__all__ = [
    "QdqModel",
    "corrected_tensors",
    "insert_qdq",
    "int8_mac_share",
    "quantizable_tensors",
    "read_qdq",
    "with_float_arithmetic",
    "with_uint8_activations",
]
