"""The GPU engine's keys in the `engine` section of a pipeline file."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

__all__ = ["Options"]

_Mib = Annotated[int, msgspec.Meta(ge=16, le=1024 * 1024)]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How TensorRT builds and runs.

    Attributes:
        route: how INT8 reaches TensorRT (docs/adr/0007); `auto` takes what suits the library that is installed.
        centres: whether Q/DQ pairs are around the centres of the table; None: the device builds both and keeps what is
            faster there; elsewhere they are.
        workspace_mib: scratch memory that a layer may take, in the build and at run time.
        tactic_memory_mib: device memory that the build may take to try tactics; None: on a Jetson, whose memory is the
            running service's too, what is available when the build begins, elsewhere TensorRT's own limit.
        optimization_level: 0 builds fast, 5 searches longest.
        dla_core: run on this DLA core what can run there, the rest on the GPU; None: all on the GPU.
    """

    route: Literal["auto", "implicit-cache", "implicit-ranges", "qdq-weak", "qdq-strong"] = "auto"
    centres: bool | None = None
    workspace_mib: _Mib = 512
    tactic_memory_mib: _Mib | None = None
    optimization_level: Annotated[int, msgspec.Meta(ge=0, le=5)] = 3
    dla_core: Annotated[int, msgspec.Meta(ge=0, le=7)] | None = None
