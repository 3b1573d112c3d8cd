"""Image files that are known by their content, whether somebody has asked for it yet or not."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from edge.digest import sha256_of
from edge.errors import DatasetError

__all__ = ["StillImage", "UnreadImage", "image_digest"]


class StillImage(Protocol):
    """An image file; `sha256` is of its bytes, lower-case hex."""

    @property
    def path(self) -> Path:
        """Where it is, for the one who names it."""
        ...

    @property
    def sha256(self) -> str:
        """What is in it."""
        ...


class UnreadImage:
    """`StillImage` whose file is only read for its digest when that is asked for, or when it travels.

    Raises:
        DatasetError: if it cannot be read then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def sha256(self) -> str:
        """What is in the file."""
        return image_digest(self.path)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "sha256": self.sha256}


def image_digest(path: Path) -> str:
    """Return the SHA-256 of an image file.

    Raises:
        DatasetError: if it cannot be read.
    """
    try:
        return sha256_of(path)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error
