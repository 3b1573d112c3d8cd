"""Small JSON files that carry the SHA-256 of themselves, so that damage is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from edge.reading import json_object

__all__ = ["open_sealed", "seal"]


def seal(values: Mapping[str, Any]) -> bytes:
    """Return a JSON object of `values` and, under "sha256", the digest of the others."""
    return json.dumps({**values, "sha256": _digest(values)}, sort_keys=True, indent=1).encode() + b"\n"


def open_sealed(content: bytes) -> dict[str, Any]:
    """Return what `seal` was given.

    Raises:
        ValueError: if it is not that, byte for byte.
    """
    values = json_object(content)
    stated = values.pop("sha256", None)
    if stated != _digest(values):
        raise ValueError("its SHA-256 is not the one that it states")
    return values


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
