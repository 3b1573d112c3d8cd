"""A DLA core with the GPU as fallback: what it asks of a model is checked before the build, and told in words.

Source of the rules: NVIDIA TensorRT documentation, "DLA Supported Layers and Restrictions".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.build.coverage import Coverage
from edge.engine.tensorrt.build.network import network_tensors
from edge.engine.tensorrt.routes import Route
from edge.errors import EngineError
from edge.types import Precision

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import Builder, IBuilderConfig, INetworkDefinition

__all__ = ["dla_notes", "require_dla", "use_dla"]

_MAX_BATCH = 4096
_MAX_SIDE = 8192
_TOLD = 3


def require_dla(
    library: TensorRtLibrary, builder: Builder, core: int, *, precision: Precision, route: Route, max_batch: int
) -> None:
    """Refuse a build for a DLA core that cannot be.

    Raises:
        EngineError: if there is no such core, or it does not compute that way.
    """
    cores = builder.num_DLA_cores
    where = f"engine.dla_core {core}"
    if core >= cores:
        found = f"this machine has {cores}" if cores else f"{library.name} {library.version} finds none here"
        hint = "Orin Nano has none; TensorRT 10.8 to 10.16 do not use them; a container needs their device files"
        raise EngineError(f"{where}: {found}", hint=f"{hint}. Leave dla_core out to use the GPU")
    if precision is Precision.FP32:
        raise EngineError(f"{where}: a DLA core computes INT8 and FP16, not fp32", hint="use fp16 or int8")
    if precision is Precision.INT8 and not route.is_implicit and library.abilities.has_calibrators:
        raise EngineError(
            f"{where}: with {library.name} {library.version} a DLA core takes scales, and no Q/DQ pairs",
            hint="use the float model with a table, and route: auto",
        )
    if max_batch > _MAX_BATCH:
        raise EngineError(f"{where}: a DLA core takes at most {_MAX_BATCH} frames at once, {max_batch} are asked for")


def use_dla(library: TensorRtLibrary, config: IBuilderConfig, core: int) -> None:
    """Let a build use a DLA core for what can run there, and the GPU for the rest."""
    trt = library.trt
    config.default_device_type = trt.DeviceType.DLA
    config.DLA_core = core
    config.set_flag(trt.BuilderFlag.GPU_FALLBACK)


def dla_notes(network: INetworkDefinition, coverage: Coverage | None) -> Iterator[str]:
    """Yield what of a network cannot run on a DLA core, and goes to the GPU, as far as that is known before."""
    large = [
        tensor.name for tensor in network_tensors(network) if any(side > _MAX_SIDE for side in tuple(tensor.shape)[1:])
    ]
    if large:
        yield f"{len(large)} tensors have a side above {_MAX_SIDE} ({', '.join(large[:_TOLD])})"
    if coverage is not None and coverage.missing:
        missing = coverage.missing
        yield f"{len(missing)} tensors lack the scale that a DLA core wants of each ({', '.join(missing[:_TOLD])})"
