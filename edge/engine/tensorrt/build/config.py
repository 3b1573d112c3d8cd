"""Configures the builder: memory that fits the machine, precision, effort, a DLA core, timings of before.

Source of the rules of a DLA core: NVIDIA TensorRT documentation, "DLA Supported Layers and Restrictions".
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.build.account import Coverage
from edge.engine.tensorrt.build.network import network_tensors
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import TensorrtDevice
from edge.engine.tensorrt.routes import Route
from edge.errors import EngineError
from edge.types import Precision
from edge.writing import write_whole

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import Builder, IBuilderConfig, INetworkDefinition

__all__ = ["Phases", "TimingCache", "dla_notes", "make_config", "make_monitor", "require_dla", "use_dla"]


@dataclass(slots=True, kw_only=True)
class _Phase:
    parent: str | None
    steps: int
    done: int = 0


class Phases:
    """Adds phases up: told is the outermost one, and how much of it is done, its inner phases included.

    What `on_progress` raises ends the build, and is kept in `failure`: it cannot travel through TensorRT.
    """

    def __init__(self, on_progress: Callable[[str, float], None]) -> None:
        self._on_progress = on_progress
        self._open: dict[str, _Phase] = {}
        self.failure: BaseException | None = None

    def start(self, name: str, parent: str | None, steps: int) -> None:
        self._open[name] = _Phase(parent=parent, steps=max(1, steps))
        self._tell(name)

    def step(self, name: str, step: int) -> bool:
        """Take that step `step`, counted from 0, is done; return whether the build is to go on."""
        if name in self._open:
            self._open[name].done = step + 1
        self._tell(name)
        return self.failure is None

    def finish(self, name: str) -> None:
        phase = self._open.pop(name, None)
        if phase is not None and phase.parent not in self._open and self.failure is None:
            self._call(name, 1.0)

    def _tell(self, name: str) -> None:
        share = 0.0
        while (phase := self._open.get(name)) is not None:
            share = min(1.0, (phase.done + share) / phase.steps)
            if phase.parent not in self._open:
                break
            assert phase.parent is not None
            name = phase.parent
        if phase is not None and self.failure is None:
            self._call(name, share)

    def _call(self, name: str, share: float) -> None:
        try:
            self._on_progress(name, share)
        except BaseException as error:
            self.failure = error


def make_monitor(library: TensorRtLibrary, phases: Phases) -> Any:
    """Return what TensorRT tells its progress to; None where it tells none."""
    if not library.abilities.has_progress_monitor:
        return None
    base: Any = library.trt.IProgressMonitor

    class _Monitor(base):  # type: ignore[misc]  # its base is known when the library is
        def __init__(self) -> None:
            base.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            phases.start(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return phases.step(phase_name, step)

        def phase_finish(self, phase_name: str) -> None:
            phases.finish(phase_name)

    return _Monitor()


_log = logging.getLogger(__name__)


_BESIDE = (".beside.timing", ".timing")


class TimingCache:
    """The cache of one library on one device in `folder`; None: nothing is kept. It never makes a build fail.

    What was timed beside a service lies in a file of its own: a build without one does not start from it, and ends it.
    """

    def __init__(
        self, folder: Path | None, library: TensorRtLibrary, device: TensorrtDevice, *, is_beside: bool
    ) -> None:
        words = f"{library.name}-{library.version}-{device.name}-sm{device.capability}"
        name = re.sub(r"[^A-Za-z0-9.]+", "-", words)
        measures = not library.abilities.has_chosen_capability  # which builds for a GPU that it does not run on
        paths = [] if folder is None or not measures else [folder / f"{name}{end}" for end in _BESIDE]
        self._paths = paths if is_beside else paths[1:]  # the first is written, and those behind it are read, too
        self._ended = [] if is_beside else paths[:1]

    def give_to(self, config: IBuilderConfig) -> None:
        """Let a build start from what is kept."""
        kept = (content for path in self._paths if (content := _read(path)))
        if self._paths and not any(self._set(config, content) for content in kept):
            self._set(config, b"")

    def take_from(self, config: IBuilderConfig) -> None:
        """Keep what a build has measured."""
        cache = config.get_timing_cache()
        if not self._paths or cache is None:
            return
        path = self._paths[0]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, bytes(cache.serialize()))
            for ended in self._ended:
                ended.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("timing cache cannot be written path=%s reason=%s", path, error)

    def _set(self, config: IBuilderConfig, content: bytes) -> bool:
        cache = config.create_timing_cache(content)
        # Never across devices or versions: a measurement of another GPU is a risk, says NVIDIA.
        return cache is not None and bool(config.set_timing_cache(cache, ignore_mismatch=False))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


_MAX_BATCH = 4096
_MAX_SIDE = 8192
_TOLD = 3


def require_dla(
    library: TensorRtLibrary, builder: Builder, core: int, *, precision: Precision, route: Route, max_batch: int
) -> None:
    """Refuse a build for a DLA core that cannot be.

    Raises `EngineError` if there is no such core, or it does not compute that way.
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


_MIB = 1024 * 1024
_KEPT_FREE_BYTES = 256 * _MIB  # for what else runs there
_TIMINGS = 8  # of a tactic, as trtexec: one is a matter of chance beside a service


def make_config(
    library: TensorRtLibrary,
    builder: Builder,
    device: TensorrtDevice,
    options: Options,
    *,
    route: Route,
    precision: Precision,
    free_bytes: int | None,
) -> IBuilderConfig:
    """Return the configuration of a build by `route`.

    `free_bytes`: memory that was available before the builder was made; None: not known.

    Raises `EngineError` if the library does not build for the GPU.
    """
    trt, abilities = library.trt, library.abilities
    config: IBuilderConfig = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_mib * _MIB)
    if (limit := _tactic_memory_bytes(options, device, free_bytes)) is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.TACTIC_DRAM, limit)
    config.builder_optimization_level = options.optimization_level
    config.avg_timing_iterations = _TIMINGS
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # without it the inspector knows no precision
    if not abilities.has_context_strategies:
        config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)
    _set_precision(library, config, route, precision)
    if abilities.has_chosen_capability:
        _set_capability(library, config, device)
    return config


def _tactic_memory_bytes(options: Options, device: TensorrtDevice, free_bytes: int | None) -> int | None:
    """Return the limit; on a Jetson it counts all that the build takes, the builder's own code included.

    None: TensorRT's own, which there is three quarters of the memory, in use or not.
    """
    if options.tactic_memory_mib is not None:
        return options.tactic_memory_mib * _MIB
    if free_bytes is None or not device.is_integrated:
        return None
    return max(_MIB, min(free_bytes - _KEPT_FREE_BYTES, device.memory_bytes * 3 // 4))


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
