"""Platform of a pipeline beside peaks and bandwidth: memory, cores, decoder, watts; None: unknown.

This machine: which of the table it is and in which power mode, as it says itself. `evidence.yaml`: what others have
measured, and the two factors that follow from it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec

from edge.capacity.work import Video
from edge.device.sensors import read_sensors
from edge.reading import text_of
from edge.roofline.machines import DecoderSpec, Machine, all_machines, jetson_of_board
from edge.types import Precision

__all__ = [
    "HostCosts",
    "Interval",
    "MeasuredEngine",
    "Platform",
    "evidence",
    "factors_of",
    "jetson_modes",
    "jetson_modules",
    "machine_here",
    "platform_of",
]

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class _Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the file: unknown keys are refused."""


class MeasuredEngine(_Facts, frozen=True, kw_only=True):
    """An engine on a board: what it took for a batch, and our account of the same model there."""

    model: str
    size_px: Count
    precision: Precision
    batch: Count
    machine: str
    batch_ms: Positive
    least_ms: Positive
    floor_ms: Positive
    layers: Count
    source: str


class LeftOut(_Facts, frozen=True, kw_only=True):
    """A figure that is published and not used."""

    what: str
    why: str


class FrameCost(_Facts, frozen=True, kw_only=True):
    """Milliseconds of one core for a frame that is inferred, beside decoding and the engine."""

    value: Positive
    source: str


class DecodeCost(_Facts, frozen=True, kw_only=True):
    """Milliseconds of one core for a frame that is decoded and scaled in software, whatever its size; and by codec
    for the pixels of 1920x1080.
    """

    frame: Positive
    for_1080p: dict[str, Positive]
    source: str


class MemoryCost(_Facts, frozen=True, kw_only=True):
    """MiB of the service alone, and of each stream of 1920x1080."""

    base: Positive
    for_1080p: Positive
    source: str


class MessageSize(_Facts, frozen=True, kw_only=True):
    """Bytes of a message without objects and of each object; `objects` is how many a frame is reckoned with."""

    empty: Count
    for_object: Count
    objects: Count
    source: str


class HostCosts(_Facts, frozen=True, kw_only=True):
    """CPU costs of frames beside the engine, as measured on one processor."""

    cpu: str
    cores: Count
    frame_ms: FrameCost
    decode_ms: DecodeCost
    memory_mib: MemoryCost
    message_bytes: MessageSize


class CapacityEvidence(_Facts, frozen=True, kw_only=True):
    """The whole file."""

    sources: dict[str, str]
    engine: Annotated[list[MeasuredEngine], msgspec.Meta(min_length=2)]
    left_out: list[LeftOut]
    host: HostCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """A batch takes `of_least` times its least time, and `layer_s` for each layer: launches, and what fills no GPU."""

    of_least: float
    layer_s: float

    def batch_s(self, least_s: float, layers: int) -> float:
        return self.of_least * least_s + self.layer_s * layers


def factors_of(rows: Sequence[MeasuredEngine]) -> Factors:
    """Return the factors whose relative errors over `rows` have the least sum of squares."""
    xs = [(row.least_ms / row.batch_ms, row.layers / row.batch_ms) for row in rows]
    aa, ab, bb = (sum(x[i] * x[j] for x in xs) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(x[0] for x in xs), sum(x[1] for x in xs)
    scale = aa * bb - ab * ab
    return Factors(of_least=(a * bb - b * ab) / scale, layer_s=(b * aa - a * ab) / scale / 1e3)


@functools.cache
def evidence() -> CapacityEvidence:
    content = (resources.files("edge.capacity") / "evidence.yaml").read_bytes()
    return msgspec.yaml.decode(content, type=CapacityEvidence)


_POINT = re.compile(r"(8k|4k|1080p)(\d+)")
_SIDES_PX = {"8k": (7680, 4320), "4k": (3840, 2160), "1080p": (1920, 1080)}
_GB = 1e9
_MEASURED = "orin"  # the architecture that the evidence is of


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """From what cannot be beaten to what is typical; None: not known."""

    least: float | None = None
    typical: float | None = None

    def __post_init__(self) -> None:
        if self.least is not None and self.typical is not None and not 0 <= self.least <= self.typical * (1 + 1e-9):
            raise ValueError(f"expected a bound that is no higher than what is typical, got {self}")

    def times(self, factor: float) -> Interval:
        return Interval(
            least=None if self.least is None else factor * self.least,
            typical=None if self.typical is None else factor * self.typical,
        )

    def as_json(self) -> dict[str, float | None]:
        return {"least": self.least, "typical": self.typical}


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A machine in one of its power modes."""

    machine: Machine
    watts: float | None  # of the power mode
    memory_bytes: float | None  # of a Jetson shared by all that runs on it, else of the card
    cores: int | None
    decoder: DecoderSpec | None  # what is published of it
    is_jetson: bool  # it decodes beside the processor, whether or not figures are published
    factors: Factors | None  # of engines there; None: nothing that could be used was published of such machines

    @property
    def called(self) -> str:
        """Its name as `--machine` takes it."""
        return self.machine.called

    def decoder_load(self, video: Video) -> Interval | None:
        """Return which part of the decoder a stream takes; None where no figure for its codec is published.

        At least: of the highest published rate of pixels. Typically: of that of its own size.
        """
        if self.decoder is None or video.codec is None:
            return None
        if (fps_1080p := self.decoder.fps_1080p.get(video.codec)) is not None:
            share = video.pixels_per_s / (1920 * 1080 * fps_1080p)
            return Interval(least=share, typical=share)
        points = self.decoder.streams.get(video.codec)
        return None if points is None else _load_by_points(video, points)


def _load_by_points(video: Video, points: Mapping[str, int]) -> Interval:
    """Of the points of the video's own size, or the next smaller one, the lowest rate counts as typical."""
    rates: dict[int, list[float]] = {}
    for name, count in points.items():
        match = _POINT.fullmatch(name)
        assert match is not None, name
        width, height = _SIDES_PX[match[1]]
        rates.setdefault(width * height, []).append(count * width * height * float(match[2]))
    own = max((pixels for pixels in rates if pixels <= video.pixels), default=min(rates))
    most = max(rate for of_size in rates.values() for rate in of_size)
    return Interval(least=video.pixels_per_s / most, typical=video.pixels_per_s / min(rates[own]))


def platform_of(machine: Machine) -> Platform:
    facts, mode = machine.facts, machine.mode
    return Platform(
        machine=machine,
        watts=None if mode is None else mode.watts,
        memory_bytes=None if facts.memory.gb is None else facts.memory.gb * _GB,
        cores=machine.cpu_cores,
        decoder=facts.decoder,
        is_jetson=facts.name.startswith("Jetson"),
        factors=factors_of(evidence().engine) if facts.architecture == _MEASURED else None,
    )


def jetson_modules() -> Iterator[Platform]:
    """Yield each Jetson module of the table, uncapped: the most that it can do."""
    yield from (platform for platform in map(platform_of, all_machines()) if platform.is_jetson)


def jetson_modes() -> Iterator[Platform]:
    """Yield each Jetson module in each power mode, the smallest module first, and of its modes that of fewest watts."""
    for module in sorted((platform.machine for platform in jetson_modules()), key=_size):
        modes = map(platform_of, module.in_each_mode())
        yield from sorted(modes, key=lambda one: (one.watts is None, one.watts or 0.0, one.machine.bytes_per_s))


def _size(machine: Machine) -> tuple[float, float, float]:
    return machine.sm_count * machine.gpu_hz, machine.bytes_per_s, machine.facts.memory.gb or 0.0


_KIB = 1024


def machine_here(root: Path = Path("/")) -> Machine | None:
    """Return the machine, uncapped where its power mode is not known; None: it is none of the table.

    `root`: where its files lie.
    """
    board = text_of(root / "proc/device-tree/model").strip("\0\n ")
    machine = jetson_of_board(board, _memory_bytes(root))
    if machine is None:
        return None
    name = (read_sensors(root).mode or "").partition(" ")[2]
    return dataclasses.replace(machine, mode_name=name) if name in machine.facts.modes else machine


def _memory_bytes(root: Path) -> int:
    pairs = (line.partition(":") for line in text_of(root / "proc/meminfo").splitlines())
    found = {name: rest.split() for name, _, rest in pairs}
    words = found.get("MemTotal", [])
    return int(words[0]) * _KIB if words and words[0].isdigit() else 0
