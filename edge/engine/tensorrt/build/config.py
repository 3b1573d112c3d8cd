"""How the builder is told to build: memory that fits the machine, precision, effort."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.device import TensorrtDevice
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.routes import Route
from edge.errors import EngineError
from edge.types import Precision

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import Builder, IBuilderConfig

__all__ = ["make_config"]

_MIB = 1024 * 1024
_BOARD_SHARE = 4  # a build beside a running service: TensorRT's own limit on a Jetson is three quarters of its memory


def make_config(
    library: TensorRtLibrary,
    builder: Builder,
    device: TensorrtDevice,
    options: Options,
    *,
    route: Route,
    precision: Precision,
) -> IBuilderConfig:
    """Return the configuration of a build by `route`.

    Raises:
        EngineError: if the library does not build for the GPU.
    """
    trt, abilities = library.trt, library.abilities
    config: IBuilderConfig = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_mib * _MIB)
    if abilities.has_tactic_memory_limit and (limit := _tactic_memory_bytes(options, device)) is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.TACTIC_DRAM, limit)
    if abilities.has_optimization_level:
        config.builder_optimization_level = options.optimization_level
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # without it the inspector knows no precision
    _set_precision(library, config, route, precision)
    if abilities.has_chosen_capability:
        _set_capability(library, config, device)
    return config


def _tactic_memory_bytes(options: Options, device: TensorrtDevice) -> int | None:
    if options.tactic_memory_mib is not None:
        return options.tactic_memory_mib * _MIB
    return device.memory_bytes // _BOARD_SHARE if device.is_integrated else None


def _set_precision(library: TensorRtLibrary, config: IBuilderConfig, route: Route, precision: Precision) -> None:
    flags = library.trt.BuilderFlag
    if precision is Precision.FP32:
        config.clear_flag(flags.TF32)  # ten bits of mantissa are not what fp32 asks for
    if route.is_strongly_typed:
        return
    if precision is not Precision.FP32:
        config.set_flag(flags.FP16)  # beside INT8, too: without it the rest of the model computes in float32
    if precision is Precision.INT8:
        config.set_flag(flags.INT8)


def _set_capability(library: TensorRtLibrary, config: IBuilderConfig, device: TensorrtDevice) -> None:
    name = "SM{}{}".format(*device.compute_capability)
    known = library.trt.ComputeCapability.__members__
    if name not in known:
        raise EngineError(
            f"{library.name} {library.version} builds for {', '.join(known)}, not for {device.name} ({name})",
            hint="install TensorRT itself: pip install tensorrt-cu12",
        )
    config.num_compute_capabilities = 1
    config.set_compute_capability(known[name], 0)
