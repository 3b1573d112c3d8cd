"""The only module that imports onnx, and only when it is used."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edge.errors import MissingDependencyError

if TYPE_CHECKING:
    from onnx import AttributeProto as AttributeProto
    from onnx import ModelProto as ModelProto
    from onnx import NodeProto as NodeProto
    from onnx import TensorProto as TensorProto
    from onnx import ValueInfoProto as ValueInfoProto

__all__ = ["decode_error", "onnx_module", "reference_evaluator"]


def onnx_module() -> ModuleType:
    """Return `onnx`, imported when it is used. Raises `MissingDependencyError` if it is not installed."""
    try:
        import onnx
        import onnx.checker
        import onnx.external_data_helper
        import onnx.helper
        import onnx.numpy_helper
        import onnx.shape_inference
        import onnx.version_converter
    except ImportError as error:
        raise MissingDependencyError(f"onnx is not importable: {error}", hint="pip install onnx") from error
    return onnx


def decode_error() -> type[Exception]:
    """Return the error of protobuf, which comes with onnx and has no type hints of its own everywhere."""
    error: type[Exception] = importlib.import_module("google.protobuf.message").DecodeError
    return error


def reference_evaluator(model: ModelProto) -> Any:
    """Return an `onnx.reference.ReferenceEvaluator`, imported then: few models need it."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model)
