"""The container of a plan: what it says of itself, and what is refused before TensorRT sees it."""

import dataclasses
from types import SimpleNamespace

import msgspec
import pytest

from edge.engine.tensorrt.plan import PlanHeader, PlanTensor, require_fit, split_plan, written_plan
from edge.errors import EngineError
from tests.support.fake_gpu import ORIN

LIBRARY = SimpleNamespace(name="tensorrt", version="10.3.0")
HEADER = PlanHeader(
    library="tensorrt",
    version="10.3.0",
    compute_capability=(8, 7),
    device="Orin",
    precision="int8",
    route="implicit-cache",
    max_batch=4,
    batch=None,
    inputs=(PlanTensor(name="images", shape=(-1, 3, 640, 640), dtype="float32"),),
    outputs=(PlanTensor(name="output0", shape=(-1, 84, 8400), dtype="float32"),),
)


def test_a_plan_is_read_back_as_it_was_written():
    header, content = split_plan(written_plan(HEADER, b"serialized"))
    assert content == b"serialized"
    assert msgspec.structs.replace(header, sha256="") == HEADER


@pytest.mark.parametrize("cut", [0, 3, 9, 11, 40, -1])
def test_a_cut_plan_is_refused(cut):
    with pytest.raises(EngineError, match=r"no plan|cannot be read|damaged"):
        split_plan(written_plan(HEADER, b"serialized")[:cut])


def test_a_flipped_bit_is_found():
    plan = bytearray(written_plan(HEADER, b"serialized"))
    plan[-3] ^= 1
    with pytest.raises(EngineError, match="damaged: its 10 bytes"):
        split_plan(bytes(plan))


def test_a_header_of_other_types_is_refused():
    plan = written_plan(HEADER, b"x").replace(b'"max_batch":4', b'"max_batch":"')
    with pytest.raises(EngineError, match="header cannot be read"):
        split_plan(plan)


def test_the_machine_that_it_was_built_on_takes_it():
    require_fit(HEADER, LIBRARY, ORIN)


@pytest.mark.parametrize(
    ("library", "device", "told"),
    [
        (SimpleNamespace(name="tensorrt", version="10.3.1"), ORIN, "tensorrt 10.3.0, here is tensorrt 10.3.1"),
        (SimpleNamespace(name="tensorrt_rtx", version="10.3.0"), ORIN, "here is tensorrt_rtx 10.3.0"),
        (LIBRARY, dataclasses.replace(ORIN, compute_capability=(8, 6)), "capability 8.7.*capability 8.6"),
        (LIBRARY, dataclasses.replace(ORIN, name="Orin NX"), "for Orin .*here is Orin NX"),
    ],
)
def test_another_version_or_device_is_named(library, device, told):
    with pytest.raises(EngineError, match=told):
        require_fit(HEADER, library, device)
