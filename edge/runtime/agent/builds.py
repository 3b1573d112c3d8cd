"""What the builder said last (`build-result.json`)."""

from __future__ import annotations

import json
from typing import Any

from edge.device.device import Device

__all__ = ["read_build_result"]

_MAX_RESULT_BYTES = 64 * 1024


def read_build_result(device: Device) -> dict[str, Any]:
    """Return it; empty where there is none that can be read."""
    path, files = device.layout.build_result, device.durable.files
    length = files.length(path)
    if length is None or length > _MAX_RESULT_BYTES:
        return {}
    try:
        result = json.loads(files.read(path))
    except (ValueError, OSError):
        return {}
    return result if isinstance(result, dict) else {}
