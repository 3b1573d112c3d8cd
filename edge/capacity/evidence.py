"""What others have measured, `evidence.yaml`, and the two factors that follow from it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec

from edge.config.convert import convert
from edge.config.yaml_file import read_yaml
from edge.errors import ConfigError
from edge.types import Precision

__all__ = [
    "CapacityEvidence",
    "Factors",
    "HostCosts",
    "MeasuredEngine",
    "evidence",
    "factors_of",
    "left_one_out",
    "read_evidence",
]

FORMAT = "edge.evidence/1"
_SEE = "edge/capacity/evidence.yaml"

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

    @property
    def efficiency(self) -> float:
        """Return the part of the measured time that the least time is."""
        return self.least_ms / self.batch_ms


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
    """What frames cost beside the engine, as measured on one processor."""

    cpu: str
    cores: Count
    frame_ms: FrameCost
    decode_ms: DecodeCost
    memory_mib: MemoryCost
    message_bytes: MessageSize


class CapacityEvidence(_Facts, frozen=True, kw_only=True):
    """The whole file."""

    format: str
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
        """Return what a batch takes, typically."""
        return self.of_least * least_s + self.layer_s * layers


def factors_of(rows: Sequence[MeasuredEngine]) -> Factors:
    """Return the factors whose relative errors over `rows` have the least sum of squares."""
    xs = [(row.least_ms / row.batch_ms, row.layers / row.batch_ms) for row in rows]
    aa, ab, bb = (sum(x[i] * x[j] for x in xs) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(x[0] for x in xs), sum(x[1] for x in xs)
    scale = aa * bb - ab * ab
    return Factors(of_least=(a * bb - b * ab) / scale, layer_s=(b * aa - a * ab) / scale / 1e3)


def left_one_out(rows: Sequence[MeasuredEngine], *, is_whole_model: bool = False) -> list[float]:
    """Return of each row how far the others are off: predicted / measured - 1.

    Args:
        rows: all of them.
        is_whole_model: leave out all rows of its model, so that nothing of it is known.
    """
    errors = []
    for row in rows:
        others = [one for one in rows if one is not row and not (is_whole_model and one.model == row.model)]
        found = factors_of(others).batch_s(row.least_ms / 1e3, row.layers)
        errors.append(1e3 * found / row.batch_ms - 1)
    return errors


def read_evidence(path: Path) -> CapacityEvidence:
    """Return the evidence at `path`.

    Raises:
        ConfigError: if it is none, or names a source that it does not explain.
    """
    document = read_yaml(path)
    found = convert(document, CapacityEvidence, see=_SEE)
    if found.format != FORMAT:
        raise document.error(("format",), f"expected {FORMAT}, got {found.format!r}")
    host = found.host
    used = {row.source for row in found.engine} | {host.frame_ms.source, host.decode_ms.source}
    unknown = sorted((used | {host.memory_mib.source, host.message_bytes.source}) - set(found.sources))
    if unknown:
        raise ConfigError(f"{path}: sources that it does not explain: {', '.join(unknown)}; add them to `sources`")
    return found


@functools.cache
def evidence() -> CapacityEvidence:
    """Return the evidence that comes with the package."""
    with resources.as_file(resources.files("edge.capacity") / "evidence.yaml") as path:
        return read_evidence(path)
