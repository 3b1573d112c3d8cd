"""What a proof says of CUDA, over the stand-in: all of it on a sound one, and what is wrong on another."""

import dataclasses

import numpy as np
import pytest

from edge.engine.cuda import proofs
from edge.engine.cuda.kernels import Kernels
from edge.engine.cuda.proofs import cuda_proofs
from edge.errors import EngineError
from edge.roofline.proof import Verdict
from edge.types import ColourOrder
from tests.support.cuda_driver import stand_in


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(proofs, "_REPLAYS", 3)
    monkeypatch.setattr(proofs, "_TIMES", 2)
    with stand_in() as made:
        yield made


def verdicts(**more):
    return {row.name: row.verdict for row in cuda_proofs(is_brief=False, opens=20, side=32, **more)}


def test_a_sound_gpu_proves_all_and_nothing_is_left_behind(device):
    found = verdicts()

    assert found.pop("gpu") is Verdict.TOLD
    assert found.pop("memory") in (Verdict.PROVEN, Verdict.WORSE)  # a time
    assert set(found.values()) == {Verdict.PROVEN}, found
    assert {"normalize float16", "candidates float32", "ptx", "graph", "threads", "opens"} <= found.keys()


def test_a_kernel_that_computes_something_else_fails(device, monkeypatch):
    right = Kernels.normalize

    def wrong(self, stream, canvas, target, *, preprocess, **more):
        swapped = dataclasses.replace(preprocess, colour_order=ColourOrder.BGR)
        right(self, stream, canvas, target, preprocess=swapped, **more)

    monkeypatch.setattr(Kernels, "normalize", wrong)
    found = verdicts()

    names = ("normalize float32", "normalize float16", "ptx", "graph")
    assert {found[name] for name in names} == {Verdict.FAILS}
    assert found["candidates float32"] is Verdict.PROVEN


def test_candidates_that_are_left_out_fail(device, monkeypatch):
    right = Kernels.candidates
    monkeypatch.setattr(
        Kernels,
        "candidates",
        lambda self, *args, score_threshold, **more: right(self, *args, score_threshold=np.float32(0.95), **more),
    )

    assert verdicts()["candidates float16"] is Verdict.FAILS


def test_a_machine_without_a_gpu_says_so(device):
    device.set(init_result=100)
    with pytest.raises(EngineError):
        verdicts()


@pytest.mark.parametrize("is_integrated", [0, 1])
def test_briefly_only_the_kernels_are_asked(device, is_integrated):
    device.set(is_integrated=is_integrated)

    found = [row.name for row in cuda_proofs(is_brief=True, side=32)]

    assert found == [
        "gpu",
        *(f"{what} {dtype}" for dtype in ("float32", "float16") for what in ("normalize", "candidates")),
    ]
