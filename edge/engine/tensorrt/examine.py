"""What `doctor` tells of TensorRT on a machine: what is installed, the route of a build, what is known not to work."""

from __future__ import annotations

from collections.abc import Iterator

from edge.engine.kind import DoctorFinding
from edge.engine.tensorrt.binding import TensorRtLibrary, import_tensorrt
from edge.engine.tensorrt.device import read_device
from edge.engine.tensorrt.facts import why_not
from edge.engine.tensorrt.known_bad import CALIBRATION, known_bad_on
from edge.engine.tensorrt.machine import ThisMachine
from edge.engine.tensorrt.routes import WantedRoute, choose_route, routes_of
from edge.errors import EngineError
from edge.types import Precision

__all__ = ["examined", "require_calibration"]


def examined(machine: ThisMachine) -> Iterator[DoctorFinding]:
    """Yield the findings of `machine`; where TensorRT cannot run, only what explains that.

    Raises:
        EdgeError: if the library or the driver does not do what its files promise.
    """
    yield from _surroundings(machine)
    if why_not(machine) is None:
        library, device = import_tensorrt(), read_device()
        told = f"{library.name} {library.version} on {device.name}, compute capability {device.capability}"
        yield DoctorFinding(name="tensorrt", is_there=True, is_needed=False, detail=told)
        yield _route(library)
    version = machine.libraries.get(machine.library or "")
    if version is not None and machine.library == "tensorrt":
        for row in known_bad_on(machine, version):
            yield DoctorFinding(name=row.what, is_there=False, is_needed=False, detail=row.told)


def require_calibration(machine: ThisMachine, library: TensorRtLibrary) -> None:
    """Refuse TensorRT's own calibrators where they are known to crash.

    Raises:
        EngineError: then, with what to do.
    """
    if CALIBRATION.applies(machine, library.version):
        raise EngineError(
            f"{library.name} {library.version} on {machine.gpu}: {CALIBRATION.problem}", hint=CALIBRATION.fix
        )


def _route(library: TensorRtLibrary) -> DoctorFinding:
    chosen = choose_route(WantedRoute(precision=Precision.INT8), library.abilities)
    others = ", ".join(route.value for route in routes_of(library.abilities) if route is not chosen.route)
    told = f"{chosen.route.value}: {chosen.why}" + (f" (also here: {others})" if others else "")
    return DoctorFinding(name="int8 route", is_there=True, is_needed=False, detail=told)


def _surroundings(machine: ThisMachine) -> Iterator[DoctorFinding]:
    """Yield what hides an installed TensorRT, or the GPU, from this process, each with its fix."""
    hidden = [copy for copy in machine.system_copies if copy.python in (machine.python, "3")]
    if machine.library is None and hidden:
        where = "this virtual environment does not" if machine.is_venv else "this Python does not"
        told = (
            f"the system has TensorRT {hidden[0].version}, {where} see it: make it again with "
            "/usr/bin/python3 -m venv --system-site-packages, or set include-system-site-packages = true in pyvenv.cfg"
        )
        yield DoctorFinding(name="system's TensorRT", is_there=False, is_needed=False, detail=told)
    foreign = [copy for copy in machine.system_copies if copy not in hidden]
    if machine.library is None and foreign and not hidden:
        told = f"the system has TensorRT {foreign[0].version} for Python {foreign[0].python}, this is {machine.python}"
        yield DoctorFinding(name="system's TensorRT", is_there=False, is_needed=False, detail=told)
    if machine.nodes and machine.missing_groups:
        groups = ",".join(machine.missing_groups)
        told = f"this user is not in {groups}: sudo usermod -aG {groups} USER, then log in again"
        yield DoctorFinding(name="groups of the GPU", is_there=not machine.closed_nodes, is_needed=False, detail=told)
    if machine.is_jetson and not machine.nodes:
        told = "a Jetson without its GPU: a container has to be started with --runtime nvidia"
        yield DoctorFinding(name="GPU", is_there=False, is_needed=False, detail=told)
