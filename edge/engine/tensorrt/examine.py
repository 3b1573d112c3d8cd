"""Findings of `doctor` about TensorRT: installed parts, the route of a build, known defects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edge.engine.kind import DoctorFinding
from edge.engine.tensorrt.binding import TensorRtLibrary, import_tensorrt
from edge.engine.tensorrt.facts import why_not
from edge.engine.tensorrt.machine import ThisMachine
from edge.engine.tensorrt.plan import read_device
from edge.engine.tensorrt.routes import WantedRoute, choose_routes, routes_of
from edge.errors import EngineError
from edge.types import Precision

__all__ = ["CALIBRATION", "KNOWN_BAD", "examined", "known_bad_on", "require_calibration", "version_numbers"]

# What is known not to work, as data. Sources are issues and pages of NVIDIA's and others' projects, named in each row;
# a row is one report or more, and no guarantee. Where our own defaults avoid it, the row says so.
_Version = tuple[int, ...]
_EVER: _Version = (999,)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBad:
    """One combination."""

    what: str  # that does not work, in a few words; the name of the finding
    since: _Version = (0,)  # a version of TensorRT; `before`: one that is excluded
    before: _Version = _EVER
    is_on_jetson: bool | None = None  # on a Jetson only (True), elsewhere only (False), or anywhere (None)
    l4t: str = ""  # beginning of the Jetson's release, as `36.`; empty: any
    problem: str
    fix: str
    source: str

    def applies(self, machine: ThisMachine, version: str) -> bool:
        fits_version = self.since <= version_numbers(version) < self.before
        fits_board = self.is_on_jetson is None or self.is_on_jetson == machine.is_jetson
        return fits_version and fits_board and (not self.l4t or (machine.l4t or "").startswith(self.l4t))

    @property
    def told(self) -> str:
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
    return (row for row in KNOWN_BAD if row.applies(machine, version))


def version_numbers(version: str) -> _Version:
    """Return `10.16.2` as (10, 16, 2); what is no number ends it."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


def examined(machine: ThisMachine) -> Iterator[DoctorFinding]:
    """Yield the findings of `machine`; where TensorRT cannot run, only what explains that.

    Raises `EdgeError` if the library or the driver does not do what its files promise.
    """
    yield from _surroundings(machine)
    if why_not(machine) is None:
        library, device = import_tensorrt(), read_device()
        told = f"{library.name} {library.version} on {device.name}, compute capability {device.capability}"
        yield DoctorFinding(name="tensorrt", is_there=True, detail=told)
        yield _route(library)
    version = machine.libraries.get(machine.library or "")
    if version is not None and machine.library == "tensorrt":
        for row in known_bad_on(machine, version):
            yield DoctorFinding(name=row.what, is_there=False, detail=row.told)


def require_calibration(machine: ThisMachine, library: TensorRtLibrary) -> None:
    """Refuse TensorRT's own calibrators where they are known to crash. Raises `EngineError`: then, with what to do."""
    if CALIBRATION.applies(machine, library.version):
        raise EngineError(
            f"{library.name} {library.version} on {machine.gpu}: {CALIBRATION.problem}", hint=CALIBRATION.fix
        )


def _route(library: TensorRtLibrary) -> DoctorFinding:
    chosen = choose_routes(WantedRoute(precision=Precision.INT8), library.abilities)[0]
    others = ", ".join(route.value for route in routes_of(library.abilities) if route is not chosen.route)
    told = f"{chosen.route.value}: {chosen.why}" + (f" (also here: {others})" if others else "")
    return DoctorFinding(name="int8 route", is_there=True, detail=told)


def _surroundings(machine: ThisMachine) -> Iterator[DoctorFinding]:
    """Yield what hides an installed TensorRT, or the GPU, from this process, each with its fix."""
    hidden = [copy for copy in machine.system_copies if copy.python in (machine.python, "3")]
    if machine.library is None and hidden:
        where = "this virtual environment does not" if machine.is_venv else "this Python does not"
        told = (
            f"the system has TensorRT {hidden[0].version}, {where} see it: make it again with "
            "/usr/bin/python3 -m venv --system-site-packages, or set include-system-site-packages = true in pyvenv.cfg"
        )
        yield DoctorFinding(name="system's TensorRT", is_there=False, detail=told)
    foreign = [copy for copy in machine.system_copies if copy not in hidden]
    if machine.library is None and foreign and not hidden:
        told = f"the system has TensorRT {foreign[0].version} for Python {foreign[0].python}, this is {machine.python}"
        yield DoctorFinding(name="system's TensorRT", is_there=False, detail=told)
    if machine.nodes and machine.missing_groups:
        groups = ",".join(machine.missing_groups)
        told = f"this user is not in {groups}: sudo usermod -aG {groups} USER, then log in again"
        yield DoctorFinding(name="groups of the GPU", is_there=not machine.closed_nodes, detail=told)
    if machine.is_jetson and not machine.nodes:
        told = "a Jetson without its GPU: a container has to be started with --runtime nvidia"
        yield DoctorFinding(name="GPU", is_there=False, detail=told)
