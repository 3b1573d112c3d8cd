"""The SHA-256 of a file, read piece by piece. Standard library only."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["sha256_and_length", "sha256_of"]

_CHUNK_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """Return the digest in lower-case hex. Raises `OSError` if the file cannot be read."""
    return sha256_and_length(path)[0]


def sha256_and_length(path: Path) -> tuple[str, int]:
    """Return the digest in lower-case hex, and the bytes that were read for it; OSError as `sha256_of`."""
    digest, length = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            digest.update(piece)
            length += len(piece)
    return digest.hexdigest(), length
