"""Its keys in the `engine` section."""

from __future__ import annotations

import msgspec


class OnnxRuntimeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`optimize` lets it fuse nodes."""

    optimize: bool = True
