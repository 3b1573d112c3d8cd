"""What the builder said last (`build-result.json`)."""

from __future__ import annotations

from typing import Any

from edge.device.device import Device
from edge.reading import json_object

__all__ = ["read_build_result"]

_MAX_RESULT_BYTES = 64 * 1024


def read_build_result(device: Device) -> dict[str, Any]:
    """Return it; empty where there is none that can be read."""
    path, files = device.layout.build_result, device.durable.files
    try:
        return json_object(files.read(path, most_bytes=_MAX_RESULT_BYTES))
    except (ValueError, OSError):
        return {}
