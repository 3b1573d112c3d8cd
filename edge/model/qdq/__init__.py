"""Explicit Q/DQ ONNX: written from ranges, and read back into ranges and a float model."""

from edge.model.qdq.emulated import with_float_arithmetic
from edge.model.qdq.faults import qdq_faults, require_sound_pairs
from edge.model.qdq.insert import QdqModel, corrected_tensors, insert_qdq
from edge.model.qdq.placement import quantizable_tensors
from edge.model.qdq.read import int8_mac_share, read_qdq, with_uint8_activations

__all__ = [
    "QdqModel",
    "corrected_tensors",
    "insert_qdq",
    "int8_mac_share",
    "qdq_faults",
    "quantizable_tensors",
    "read_qdq",
    "require_sound_pairs",
    "with_float_arithmetic",
    "with_uint8_activations",
]
