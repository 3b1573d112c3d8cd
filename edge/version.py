"""The version of this package, in one place."""

import re

__all__ = ["RELEASED_AT", "__version__", "is_later"]

__version__ = "0.1.0"
RELEASED_AT = "2026-11-20T00:00:00Z"
"""No clock that runs this version can be right and show an earlier time."""


def is_later(version: str) -> bool:
    """Return whether a version, as digits and dots, is later than this one; one that is none is not."""
    is_one = re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}", version) is not None
    return is_one and _parts(version) > _parts(__version__)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in (version.split(".") + ["0"] * 3)[:4])
