"""`lock`, `have` and `blob`: the way of the files to a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from edge.wire.codec import Most

__all__ = ["BlobRequest", "HaveAnswer", "HaveRequest", "LockRequest"]

_LENGTH = 2**50


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """Hold the push lock until the connection ends; `in_trial`: also while a release is on trial."""

    who: Annotated[str, Most(200)]
    why: Annotated[str, Most(200)]
    in_trial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HaveRequest:
    """Which of these blobs are missing?"""

    sha256: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HaveAnswer:
    """By SHA-256, how many bytes of a missing blob are there already."""

    missing: Mapping[str, Annotated[int, Most(_LENGTH)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRequest:
    """The `length` bytes of a blob from `offset` on follow."""

    sha256: str
    offset: Annotated[int, Most(_LENGTH)]
    length: Annotated[int, Most(_LENGTH)]
