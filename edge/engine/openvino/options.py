"""The CPU engine's keys in the `engine` section of a pipeline file."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ["Options"]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`threads` None = all cores; `rows_per_request` > 1 runs that many rows as one batch."""

    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    rows_per_request: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
