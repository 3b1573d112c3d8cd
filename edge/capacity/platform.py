"""What a pipeline runs on, beside peaks and bandwidth: memory, cores, decoder, watts; what is not known is None."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edge.capacity.demand import Video
from edge.capacity.evidence import Factors, evidence, factors_of
from edge.roofline.machines import Machine, all_machines
from edge.roofline.measured import MeasuredMachine
from edge.roofline.table import DecoderSpec
from edge.types import Precision

__all__ = ["DecoderLoad", "Platform", "jetson_modes", "jetson_modules", "platform_here", "platform_of"]

_POINT = re.compile(r"(8k|4k|1080p)(\d+)")
_SIDES_PX = {"8k": (7680, 4320), "4k": (3840, 2160), "1080p": (1920, 1080)}
_GB = 1e9
_MEASURED = "orin"  # the architecture that the evidence is of


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLoad:
    """Which part of a decoder a stream takes: of the highest published rate of pixels, and of that of its own size."""

    least: float
    typical: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A machine in one of its power modes.

    Attributes:
        watts: of the power mode.
        memory_bytes: of a Jetson shared by all that runs on it, else of the card.
        decoder: what is published of it.
        is_jetson: it decodes beside the processor, whether or not figures are published.
        factors: of engines there; None: nothing that could be used was published of such machines.
        frame_s: how long the engine took for a frame, measured on it, where its processor is what infers.
        core_s: the time of its cores that this took; other threads use what is left.
        doubt: what speaks against that measurement; None: nothing.
    """

    machine: Machine | MeasuredMachine
    watts: float | None
    memory_bytes: float | None
    cores: int | None
    decoder: DecoderSpec | None
    is_jetson: bool
    factors: Factors | None
    frame_s: float | None = None
    core_s: float = 0.0
    doubt: str | None = None

    @property
    def remainder(self) -> Precision:
        """In what engines compute there what INT8 leaves."""
        return Precision.FP16 if self.frame_s is None else Precision.FP32

    @property
    def called(self) -> str:
        """Its name as `--machine` takes it."""
        return self.machine.called

    def decoder_load(self, video: Video) -> DecoderLoad | None:
        """Return what a stream takes of the decoder; None where nobody published how much its codec takes."""
        if self.decoder is None or video.codec is None:
            return None
        if (fps_1080p := self.decoder.fps_1080p.get(video.codec)) is not None:
            share = video.pixels_per_s / (1920 * 1080 * fps_1080p)
            return DecoderLoad(least=share, typical=share)
        points = self.decoder.streams.get(video.codec)
        return None if points is None else _load_by_points(video, points)


def _load_by_points(video: Video, points: Mapping[str, int]) -> DecoderLoad:
    """Of the points of the video's own size, or the next smaller one, the lowest rate counts as typical."""
    rates: dict[int, list[float]] = {}
    for name, count in points.items():
        match = _POINT.fullmatch(name)
        assert match is not None, name
        width, height = _SIDES_PX[match[1]]
        rates.setdefault(width * height, []).append(count * width * height * float(match[2]))
    own = max((pixels for pixels in rates if pixels <= video.pixels), default=min(rates))
    most = max(rate for of_size in rates.values() for rate in of_size)
    return DecoderLoad(least=video.pixels_per_s / most, typical=video.pixels_per_s / min(rates[own]))


def platform_of(machine: Machine) -> Platform:
    """Return what is known of a machine of the table."""
    facts, mode = machine.facts, machine.mode
    uncapped = None if facts.cpu is None else facts.cpu.cores
    return Platform(
        machine=machine,
        watts=None if mode is None else mode.watts,
        memory_bytes=None if facts.memory.gb is None else facts.memory.gb * _GB,
        cores=uncapped if mode is None else mode.cpu_cores,
        decoder=facts.decoder,
        is_jetson=facts.name.startswith("Jetson"),
        factors=factors_of(evidence().engine) if facts.architecture == _MEASURED else None,
    )


def platform_here(machine: MeasuredMachine, *, frame_s: float, core_s: float, memory_bytes: float) -> Platform:
    """Return this machine as it was measured, with a model that took so long, and so much, for a frame."""
    return Platform(
        machine=machine,
        watts=None,
        memory_bytes=memory_bytes,
        cores=machine.cores,
        decoder=None,
        is_jetson=False,
        factors=None,
        frame_s=frame_s,
        core_s=core_s,
        doubt=machine.doubt,
    )


def jetson_modules() -> Iterator[Platform]:
    """Yield each Jetson module of the table, uncapped: the most that it can do."""
    yield from map(platform_of, _jetsons())


def _jetsons() -> Iterator[Machine]:
    yield from (machine for machine in all_machines() if platform_of(machine).is_jetson)


def jetson_modes() -> Iterator[Platform]:
    """Yield each Jetson module in each power mode, the smallest module first, and of its modes that of fewest watts."""
    for module in sorted(_jetsons(), key=_size):
        modes = map(platform_of, module.in_each_mode())
        yield from sorted(modes, key=lambda one: (one.watts is None, one.watts or 0.0, one.machine.bytes_per_s))


def _size(machine: Machine) -> tuple[float, float, float]:
    return machine.sm_count * machine.gpu_hz, machine.bytes_per_s, machine.facts.memory.gb or 0.0
