"""Lists the software and hardware that edge-deploy can use here, and how to get the missing parts."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from edge.capacity.fit import beyond_bound, stated_work
from edge.capacity.platform import machine_here, platform_of
from edge.capacity.work import model_of_pipeline
from edge.config.pipeline import load_pipeline
from edge.engine.kind import DoctorFinding, load_kind
from edge.engine.kinds import AUTO, choose_kind, kinds
from edge.engine.section import read_model
from edge.errors import ConfigError, EdgeError
from edge.media.gstreamer.binding import load as load_gstreamer
from edge.media.gstreamer.binding import load_errors
from edge.media.gstreamer.build import NVMM_FACTORIES
from edge.runtime.serve.engine import start_engine, warm_up
from edge.runtime.serve.overload import judge_admission, measure_engine
from edge.runtime.serve.streams import stated_rates

__all__ = ["examine", "examine_bound", "examine_pipeline"]

_SOFTWARE_ELEMENTS = (
    "rtspsrc",
    "parsebin",
    "avdec_h264",
    "avdec_h265",
    "jpegdec",
    "videoscale",
    "capssetter",
)


def examine() -> Iterator[DoctorFinding]:
    """Raises nothing."""
    cores = len(os.sched_getaffinity(0))
    yield _fact("machine", f"{platform.machine()}, {cores} cores, Python {sys.version.split()[0]}")
    yield from _engines()
    yield _library("onnx", is_needed=True, use="reading models", get="pip install onnx")
    yield _library("paho-mqtt", is_needed=True, use="MQTT", get="pip install paho-mqtt")
    yield _library("av", is_needed=False, use="decoding without GStreamer", get="pip install 'edge-deploy[pyav]'")
    yield _library("amqtt", is_needed=False, use="the demo's broker", get="pip install 'edge-deploy[demo]'")
    yield from _gstreamer()


def examine_pipeline(path: Path) -> DoctorFinding:
    """Return whether the engine of a pipeline, measured here, can serve what its streams state.
    Raises `EdgeError` if the pipeline file cannot be used, or its engine cannot be built.
    """
    pipeline = load_pipeline(path)
    engine = start_engine(pipeline, read_model(pipeline), None).engine
    try:
        warm_up(engine)
        verdict = judge_admission(measure_engine(engine), stated_rates(pipeline))
    finally:
        engine.close()
    return DoctorFinding(
        name=f"engine of {path.name}", is_there=verdict.is_served, is_needed=False, detail=verdict.text
    )


def examine_bound(path: Path, root: Path = Path("/")) -> DoctorFinding | None:
    """Return whether this machine can serve what a pipeline's streams state, whatever engine runs.

    None where it is no machine whose peaks are known, or no live stream states a rate; nothing is built or measured.

    Raises `EdgeError` if pipeline, model or table cannot be used.
    """
    machine, pipeline = machine_here(root), load_pipeline(path)
    work = None if machine is None else stated_work(pipeline, model_of_pipeline(pipeline))
    if machine is None or work is None:
        return None
    beyond = beyond_bound(work, [platform_of(machine)])
    within = f"{round(work.wanted_fps, 1):g} fps are stated, which is within that of {machine.called}"
    detail = beyond[0] if beyond else within
    return DoctorFinding(name=f"bound of {path.name}", is_there=not beyond, is_needed=False, detail=detail)


def _fact(name: str, detail: str) -> DoctorFinding:
    return DoctorFinding(name=name, is_there=True, is_needed=False, detail=detail)


def _library(name: str, *, is_needed: bool, use: str, get: str) -> DoctorFinding:
    try:
        detail = f"{importlib.metadata.version(name)} ({use})"
    except importlib.metadata.PackageNotFoundError:
        return DoctorFinding(name=name, is_there=False, is_needed=is_needed, detail=f"for {use}: {get}")
    return DoctorFinding(name=name, is_there=True, is_needed=is_needed, detail=detail)


def _engines() -> Iterator[DoctorFinding]:
    """Yield which kind of engine `auto` takes here, and of each kind why it cannot run, or what it says of itself."""
    try:
        choice = choose_kind(AUTO)
        yield _fact("engine", f"{AUTO} is {choice.reason}")
    except ConfigError as error:
        yield DoctorFinding(name="engine", is_there=False, is_needed=True, detail=error.problem)
    for facts in kinds().values():
        why_not = facts.why_not()
        if why_not is not None:
            yield DoctorFinding(name=facts.name, is_there=False, is_needed=False, detail=why_not)
        yield from _examined(facts.name)


def _examined(name: str) -> Iterator[DoctorFinding]:
    try:
        yield from load_kind(name).examine()
    except EdgeError as error:
        yield DoctorFinding(name=name, is_there=False, is_needed=False, detail=str(error))


def _gstreamer() -> Iterator[DoctorFinding]:
    try:
        gst = load_gstreamer().gst
    except EdgeError as error:
        yield DoctorFinding(name="gstreamer", is_there=False, is_needed=False, detail=str(error))
        return
    yield _fact("gstreamer", gst.version_string())
    find: Callable[[str], object | None] = gst.ElementFactory.find
    for kind, names in (("software", _SOFTWARE_ELEMENTS), ("nvmm", NVMM_FACTORIES)):
        missing = [name for name in names if find(name) is None]
        detail = f"without {', '.join(missing)}" if missing else "all elements are here"
        yield DoctorFinding(name=f"{kind} decoding", is_there=not missing, is_needed=False, detail=detail)
    for name, why in load_errors().items():
        yield DoctorFinding(name=name, is_there=False, is_needed=False, detail=f"is installed and does not load: {why}")
