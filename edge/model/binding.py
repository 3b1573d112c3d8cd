"""The only module that imports onnx, and only when it is used; weights in files beside a model, by its own helper."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edge.errors import MissingDependencyError, ModelError

if TYPE_CHECKING:
    from onnx import AttributeProto as AttributeProto
    from onnx import ModelProto as ModelProto
    from onnx import NodeProto as NodeProto
    from onnx import TensorProto as TensorProto
    from onnx import ValueInfoProto as ValueInfoProto

__all__ = [
    "MOST_EXTERNAL_BYTES",
    "decode_error",
    "external_locations",
    "load_external",
    "onnx_module",
    "reference_evaluator",
]


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


MOST_EXTERNAL_BYTES = 16 << 30
"""Limit of all weights together; those of the largest detectors take a fiftieth."""

_SLACK_BYTES = 64 << 10  # per tensor: exporters align them to pages
_WIDEST_BYTES = 16  # complex128


def external_locations(proto: ModelProto) -> list[str]:
    """Return the files that a model keeps weights in, as it names them, sorted."""
    return sorted({location for tensor in proto.graph.initializer if (location := _entry(tensor, "location"))})


def load_external(proto: ModelProto, where: str, folder: Path | None, onnx: ModuleType) -> None:
    """Put the weights that lie in other files into the model, in place.

    `proto`: the model; `where` names it in errors. `folder`: in which the files are; None: nowhere.
    Raises `ModelError` if one is not there, is longer than its tensors are, or cannot be read.
    """
    locations = external_locations(proto)
    if not locations:
        return
    if folder is None:
        raise ModelError(f"{where}: its weights lie in other files ({', '.join(locations)}), which bytes do not carry")
    missing = [location for location in locations if not (folder / location).is_file()]
    if missing:
        raise ModelError(
            f"{where}: its weights lie in {', '.join(missing)}, expected beside the model, not found",
            hint="copy these files along, or export into one file",
        )
    for location in locations:
        _require_length(proto, where, location, folder)
    try:
        onnx.external_data_helper.load_external_data_for_model(proto, str(folder))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(f"{where}: its external weights cannot be read: {error}", hint="export it again") from error


def _require_length(proto: ModelProto, where: str, location: str, folder: Path) -> None:
    """Refuse a file, or a part of one, that is longer than what the model says of it: it would take all memory."""
    tensors = [tensor for tensor in proto.graph.initializer if _entry(tensor, "location") == location]
    most = min(sum(_most_bytes(tensor) + _SLACK_BYTES for tensor in tensors), MOST_EXTERNAL_BYTES)
    length = (folder / location).stat().st_size
    if length > most:
        raise ModelError(
            f"{where}: {folder / location}: expected at most {most} bytes for its {len(tensors)} tensors, "
            f"it has {length}",
            hint="copy or export it again",
        )
    for tensor in tensors:
        stated = _entry(tensor, "length")
        if stated.isdecimal() and int(stated) > _most_bytes(tensor):
            raise ModelError(
                f'{where}: tensor "{tensor.name}" of shape {tuple(tensor.dims)} is said to have {stated} bytes',
                hint="export it again",
            )


def _most_bytes(tensor: TensorProto) -> int:
    elements = _WIDEST_BYTES
    for dim in tensor.dims:
        elements *= max(dim, 0)
    return elements


def _entry(tensor: TensorProto, key: str) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == key), "")
