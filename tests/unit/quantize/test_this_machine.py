"""When a machine is measured again, with a kind whose measurements are written down beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.engine.kind import Plan
from edge.engine.openvino.options import Options
from edge.errors import ConfigError
from edge.quantize import this_machine
from edge.quantize.account import accounts_of
from edge.quantize.this_machine import ROUNDS, cores_of, is_this_machine, measured_here
from edge.roofline.efficiency import ExecutedNode
from edge.roofline.measured import MeasuredMachine, Rate, WorkingSet
from edge.types import Precision

MODEL = Path(__file__).parents[3] / "edge/demo/model/traffic.onnx"
HEAVY = "/detector/heads.0/box/box.0/conv/Conv"
OPERATIONS = 2 * 32 * 32 * 9 * 40 * 40


class Written:
    """A kind on two cores; `peaks` are those of the rounds, the last one for all that follow."""

    name, options_type, cores = "written", Options, 2
    is_processor, precisions = True, (Precision.FP32, Precision.INT8)

    def __init__(self, peaks, layer_s):
        self.peaks, self.layer_s, self.rounds = list(peaks), layer_s, 0

    def roof_meter(self, *, cores):
        return self

    def measure(self):
        peak = self.peaks[min(self.rounds, len(self.peaks) - 1)]
        self.rounds += 1
        return MeasuredMachine(
            processor="P", cores=1, all_cores=2, engine="e", peaks={Precision.FP32: Rate(rounds=(peak,))},
            sets=(WorkingSet(size_bytes=1 << 14, rate=Rate(rounds=(1e15,))),), cpu_share=1.0,
        )  # fmt: skip

    def build(self, forms, request):
        return Plan(data=forms.float_model())

    def node_meter(self, spec, names, *, content, rows, cores):
        return Nodes(self.layer_s)


class Nodes:
    resolution_s, run_s, interrupted = 0.0, 1.0, 0.25

    def __init__(self, layer_s):
        self.layer_s = layer_s

    def measure(self):
        pass

    def nodes(self):
        return [ExecutedNode(name="n", kind="k", layers=frozenset([HEAVY]), seconds=self.layer_s)]


@pytest.fixture
def measure(monkeypatch):
    def with_(peaks, *, layer_s):
        kind = Written(peaks, layer_s)
        monkeypatch.setattr(this_machine, "_measuring_kind", lambda engine: kind)
        accounts = accounts_of(MODEL, table=None, batch=None, remainder=Precision.FP32)
        return kind, measured_here(accounts, cores=1)

    return with_


def test_quiet_rounds_are_enough(measure):
    kind, found = measure([100e9], layer_s=2 * OPERATIONS / 100e9)

    assert kind.rounds == 1 + ROUNDS
    assert found.models[Precision.FP32].layers[0].efficiency == pytest.approx(0.5)
    assert found.models[Precision.FP32].interrupted == 0.25
    assert found.beaten == ()


def test_a_layer_above_the_roof_means_that_the_roof_is_measured_again(measure):
    kind, found = measure([50e9] * (1 + ROUNDS) + [100e9, 100e9], layer_s=OPERATIONS / 90e9)

    assert kind.rounds > 1 + ROUNDS
    assert found.machine.peak(Precision.FP32) == 100e9
    assert found.beaten == ()


def test_a_layer_that_stays_above_it_is_told(measure):
    kind, found = measure([50e9], layer_s=OPERATIONS / 90e9)

    assert kind.rounds == 1 + 2 * ROUNDS
    assert [one.called for one in found.beaten] == [HEAVY]


def test_what_remains_within_the_noise_is_not_told(measure):
    _, found = measure([100e9, 94e9], layer_s=OPERATIONS / 105e9)  # 5 % above, the two best rounds 6 % apart

    assert found.models[Precision.FP32].excess == pytest.approx(0.05)
    assert found.beaten == ()
    _, sure = measure([100e9, 99e9], layer_s=OPERATIONS / 105e9)
    assert [one.called for one in sure.beaten] == [HEAVY]


def test_a_spread_of_the_roof_is_no_excuse_not_to_measure_it_again(measure):
    kind, found = measure([50e9, 70e9, 40e9, 40e9, 100e9, 100e9], layer_s=OPERATIONS / 90e9)

    assert kind.rounds > 1 + ROUNDS
    assert found.machine.peak(Precision.FP32) == 100e9


@pytest.mark.parametrize(
    ("name", "is_here"), [("this", True), ("THIS/1", True), ("thisbe", False), ("rtx-3080", False)]
)
def test_its_name(name, is_here):
    assert is_this_machine(name) is is_here


@pytest.mark.parametrize("name", ["this/0", "this/3", "this/-1", "this/x", "this/", "this/1/1", "this/\u0661"])
def test_cores_that_are_not_there(monkeypatch, name):
    monkeypatch.setattr(this_machine, "_measuring_kind", lambda engine: Written([1.0], 1.0))

    assert (cores_of("this"), cores_of("this/1"), cores_of("This/2")) == (2, 1, 2)
    with pytest.raises(ConfigError, match="1 to 2"):
        cores_of(name)
