"""A model whose account is known, cameras, machines of the table and made-up ones."""

import dataclasses
from pathlib import Path

import pytest

from edge.capacity.platform import platform_of
from edge.capacity.work import ASSUMED, Origin, PipelineModel, StreamDemand, Video, Work
from edge.model.graph import read_model_file
from edge.model.inspect import inspect_file
from edge.roofline.machines import find_machine
from edge.types import ImageSize, Precision

MODEL = Path(__file__).parents[3] / "edge/demo/model/traffic.onnx"


def camera(name="a", *, video=ASSUMED, wanted_fps=None):
    return StreamDemand(id=name, video=video, wanted_fps=wanted_fps or video.fps, origin=Origin.STATED)


def video(width=1920, height=1080, fps=30.0, codec="h265"):
    return Video(size=ImageSize(width=width, height=height), fps=fps, codec=codec)


@pytest.fixture(scope="session")
def model():
    file = read_model_file(MODEL)
    return PipelineModel(spec=inspect_file(file), graph=file.graph, precision=Precision.FP16)


@pytest.fixture(scope="session")
def work(model):
    def make(*cameras, max_frames=4, max_wait_s=0.02, mode="change", of=model):
        return Work(
            cameras=cameras or (camera(),), model=of, max_frames=max_frames, max_wait_s=max_wait_s,
            mode=mode, heartbeat_s=1.0, has_broker=True,
        )  # fmt: skip

    return make


@pytest.fixture(scope="session")
def platform():
    return lambda name: platform_of(find_machine(name))


@pytest.fixture(scope="session")
def with_memory():
    """A platform with another clock of its memory."""

    def make(name, mhz):
        found = find_machine(name)
        memory = type(found.facts.memory)(
            bus_bits=found.facts.memory.bus_bits, mhz=mhz, source="x", gb=found.facts.memory.gb
        )
        facts = _replaced(found.facts, memory=memory)
        return platform_of(dataclasses.replace(found, facts=facts))

    return make


def _replaced(facts, **changes):
    import msgspec

    return msgspec.structs.replace(facts, **changes)
