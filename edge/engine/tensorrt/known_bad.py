"""What is known not to work, as data: on which machine, with which TensorRT, and what to do instead.

Sources are issues and pages of NVIDIA's and others' projects, named in each row; a row is one report or more, and no
guarantee. Where our own defaults avoid it, the row says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edge.engine.tensorrt.machine import ThisMachine

__all__ = ["CALIBRATION", "KNOWN_BAD", "KnownBad", "known_bad_on", "version_numbers"]

_Version = tuple[int, ...]
_EVER: _Version = (999,)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBad:
    """One combination.

    Attributes:
        what: that does not work, in a few words; the name of the finding.
        since, before: versions of TensorRT, the second one excluded.
        is_on_jetson: on a Jetson only (True), elsewhere only (False), or anywhere (None).
        l4t: beginning of the Jetson's release, as `36.`; empty: any.
        problem: what happens.
        fix: what to do.
        source: where it was reported.
    """

    what: str
    since: _Version = (0,)
    before: _Version = _EVER
    is_on_jetson: bool | None = None
    l4t: str = ""
    problem: str
    fix: str
    source: str

    def applies(self, machine: ThisMachine, version: str) -> bool:
        """Return whether `machine` with TensorRT `version` is such a combination."""
        fits_version = self.since <= version_numbers(version) < self.before
        fits_board = self.is_on_jetson is None or self.is_on_jetson == machine.is_jetson
        return fits_version and fits_board and (not self.l4t or (machine.l4t or "").startswith(self.l4t))

    @property
    def told(self) -> str:
        """Problem and fix, for people."""
        return f"{self.problem}: {self.fix}"


CALIBRATION = KnownBad(
    what="TensorRT's calibrators here",
    since=(10,),
    before=(11,),
    is_on_jetson=True,
    problem="on a Jetson TensorRT 10 crashes, or ends with no scales, when it calibrates itself",
    fix="make the table on a workstation (edge-deploy calibrate); the build here takes it as it is",
    source="NVIDIA-AI-IOT/Deep-Learning-Accelerator-SW 26, ultralytics 24368",
)

KNOWN_BAD = (
    CALIBRATION,
    KnownBad(
        what="TensorRT's calibrators",
        since=(11,),
        problem="TensorRT 11 has none, nor an INT8 flag",
        fix="nothing is to be done: tables become Q/DQ pairs; calibrate by --method",
        source="NVIDIA: Migrating from TensorRT 10.x to 11.x",
    ),
    KnownBad(
        what="INT8 of heads with TopK",
        since=(10,),
        before=(10, 7),
        problem="TensorRT 10.0 to 10.6 fails to build INT8 for end-to-end heads (YOLO26, YOLOv10)",
        fix="use precision: fp16 for such a model, or TensorRT 10.7 or newer",
        source="ultralytics 24368",
    ),
    KnownBad(
        what="strongly typed Q/DQ beside a Slice",
        since=(10, 16),
        before=(11,),
        is_on_jetson=True,
        problem="TensorRT 10.16 on Orin fails in its compiler where a DequantizeLinear is next to a Slice",
        fix="leave engine.route at auto, which is weakly typed here",
        source="NVIDIA/TensorRT 4832",
    ),
    KnownBad(
        what="DLA",
        since=(10, 8),
        before=(11, 4, 1),
        is_on_jetson=True,
        problem="TensorRT 10.8 to 11.4.0 do not use DLA cores",
        fix="leave engine.dla_core out",
        source="NVIDIA: TensorRT release notes, Working with DLA",
    ),
    KnownBad(
        what="TensorRT for this JetPack",
        since=(11,),
        is_on_jetson=True,
        l4t="36.",
        problem="TensorRT 11 does not support Jetson Orin on JetPack 6",
        fix="stay with the TensorRT 10 of JetPack 6, or move to JetPack 7.2",
        source="NVIDIA: TensorRT 11.4.1 release notes",
    ),
)


def known_bad_on(machine: ThisMachine, version: str) -> Iterator[KnownBad]:
    """Yield the combinations that `machine` with TensorRT `version` is."""
    return (row for row in KNOWN_BAD if row.applies(machine, version))


def version_numbers(version: str) -> _Version:
    """Return `10.16.2` as (10, 16, 2); what is no number ends it."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
