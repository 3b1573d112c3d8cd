"""Its keys in the `engine` section."""

import msgspec


class OnnxRuntimeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`optimize` lets it fuse nodes."""

    optimize: bool = True
