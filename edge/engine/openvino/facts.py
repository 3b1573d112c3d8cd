"""Facts of the CPU engine before OpenVINO is loaded. Standard library only."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Mapping
from importlib import metadata

from edge.engine.kinds import KindFacts

__all__ = ["FACTS"]

_MIB = 1024 * 1024
# A little more than OpenVINO took for YOLOv5n and YOLOX-Nano at batches of 1, 4 and 16 (156 to 491 MiB; at most a third
# more).
_REST_BYTES = 128 * _MIB
_PER_MODEL_BYTE = 8
_PER_PIXEL_BYTES = 54  # of all images of a batch


def _why_not() -> str | None:
    if importlib.util.find_spec("openvino") is None:
        return "OpenVINO is not installed: pip install openvino"
    return None


def _versions() -> Mapping[str, str]:
    try:
        version = metadata.version("openvino")
    except metadata.PackageNotFoundError:
        version = "not installed"
    return {"openvino": version, "architecture": platform.machine()}


def _build_memory_bytes(model_bytes: int, pixels: int) -> int:
    return _REST_BYTES + _PER_MODEL_BYTE * model_bytes + _PER_PIXEL_BYTES * pixels


FACTS = KindFacts(
    name="openvino", rank=0, why_not=_why_not, versions=_versions, build_memory_bytes=_build_memory_bytes, is_quick=True
)
