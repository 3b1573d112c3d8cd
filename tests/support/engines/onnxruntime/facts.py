"""What is known of the kind before ONNX Runtime is loaded. Standard library only."""

import importlib.util
from importlib import metadata

from edge.engine.kinds import KindFacts

_MIB = 1024 * 1024


def _why_not() -> str | None:
    is_there = importlib.util.find_spec("onnxruntime") is not None
    return None if is_there else "ONNX Runtime is not installed: pip install onnxruntime"


FACTS = KindFacts(
    name="onnxruntime",
    rank=5,
    why_not=_why_not,
    versions=lambda: {"onnxruntime": metadata.version("onnxruntime")},
    build_memory_bytes=lambda model_bytes, pixels: 256 * _MIB + 8 * model_bytes + 64 * pixels,
    is_quick=True,
)
