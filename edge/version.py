"""The version of this package, in one place."""

__all__ = ["RELEASED_AT", "__version__"]

__version__ = "0.1.0"
RELEASED_AT = "2026-11-20T00:00:00Z"
"""No clock that runs this version can be right and show an earlier time."""
