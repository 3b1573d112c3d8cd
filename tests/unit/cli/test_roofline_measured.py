"""What was measured and what INT8 is worth, in words and on the page: of made measurements of the demo's model."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from edge.cli.roofline_lines import machine_lines, machines_lines, roofline_of, summary_sentences
from edge.cli.roofline_measured import measured_layer_lines, measured_lines
from edge.cli.roofline_page import roofline_page
from edge.cli.roofline_worth import worth_lines
from edge.quantize.account import accounts_of
from edge.quantize.this_machine import Measured
from edge.roofline.bound import bound_of_model
from edge.roofline.efficiency import ExecutedNode, measured_model
from edge.roofline.machines import find_machine
from edge.roofline.measured import MeasuredMachine, Rate, WorkingSet
from edge.types import Precision
from tests.unit.cli.test_compare_page import EVIL, Page

ROOT = Path(__file__).parents[3]
SLOW = "/detector/stem/stem.0/conv/Conv"


@pytest.fixture(scope="module")
def accounts():
    return accounts_of(
        ROOT / "edge/demo/model/traffic.onnx", table=ROOT / "calib_cache/traffic.calib.json", batch=None,
        remainder=Precision.FP32,
    )  # fmt: skip


@pytest.fixture
def machine():
    sets = ((1 << 14, 200e9), (1 << 19, 190e9), (1 << 24, 60e9), (1 << 28, 20e9))
    return MeasuredMachine(
        processor="Abacus <9>", cores=1, all_cores=2, engine="beads 1.0",
        peaks={Precision.FP32: Rate(rounds=(1e11, 0.98e11)), Precision.INT8: Rate(rounds=(4e11, 4e11))},
        sets=tuple(WorkingSet(size_bytes=size, rate=Rate(rounds=(rate, rate))) for size, rate in sets),
        cpu_share=1.0,
    )  # fmt: skip


def made(accounts, machine, *, factor=1.25, kinds=(Precision.FP32, Precision.INT8), name=lambda layer: layer.name):
    """Return measurements in which each layer takes `factor` of its least time, one of them four times."""
    models = {}
    for kind in kinds:
        bound = bound_of_model(accounts.by_precision[kind], machine)
        nodes = [
            ExecutedNode(
                name=name(one.layer), kind="Convolution beads", layers=frozenset([one.layer.nodes[0]]),
                seconds=one.least_s * (4 if one.layer.name == SLOW else factor),
            )
            for one in bound.layers[:-1]
        ]  # fmt: skip
        nodes.append(ExecutedNode(name="turn", kind="Reorder beads", layers=frozenset(), seconds=50e-6))
        models[kind] = measured_model(bound, nodes, run_s=1.5 * bound.least_s, resolution_s=0.0)
    return Measured(machine=machine, models=models, why_not={} if len(kinds) > 1 else {Precision.INT8: "no table"})


def test_a_measured_machine_in_words(machine):
    assert list(machine_lines(machine)) == [
        "Abacus <9>, 1 of 2 cores, measured (this/1; beads 1.0)",
        "peaks of convolutions: FP32 100 Gop/s (the two best rounds within 2.0%), "
        "INT8 400 Gop/s (the two best rounds within 0.0%)",
        "bandwidth by what is moved: 200 GB/s up to 512 KiB, 60 GB/s up to 16 MiB, 20 GB/s beyond",
    ]
    busy = dataclasses.replace(machine, cpu_share=0.5, why_no={Precision.INT8: "no VNNI"})
    assert list(machine_lines(busy))[3:] == [
        "INT8 is not bounded: no VNNI",
        "careful: the machine was busy: even the fastest runs had 50% of the time of its cores. Peaks and "
        "bandwidths are too low then",
    ]
    assert list(machines_lines([find_machine("rtx-3080")]))[-1].split()[0] == "this"


def test_each_precision_against_its_bound_in_words(accounts, machine):
    lines = list(measured_lines(made(accounts, machine)))

    assert [line.split(":")[0] for line in lines if line[0] != " "] == [
        "FP32",
        "INT8",
        "No layer is faster than its bound.",
    ]
    assert "67% of the roof" in lines[0]
    assert "1 other nodes 0.050 (Reorder 50 us)" in lines[0]
    assert lines[1].startswith(f"  far below: {SLOW} (3x3, 3 to 16 channels, 160x160): 885 us for at least 221.2 (25%)")
    assert lines[2] == "  no time of their own, inside of others or too short: /Sigmoid"


def test_runs_that_others_interrupted_are_said(accounts, machine):
    measured = made(accounts, machine, kinds=(Precision.FP32,))

    def lines(share):
        model = dataclasses.replace(measured.models[Precision.FP32], interrupted=share)
        return "".join(measured_lines(dataclasses.replace(measured, models={Precision.FP32: model})))

    assert "others had a core during 60% of the runs: layers are measured too slow" in lines(0.6)
    assert "careful" not in lines(0.4)


def test_a_precision_that_was_not_run_and_a_layer_above_its_roof_are_said(accounts, machine):
    lines = list(measured_lines(made(accounts, machine, factor=0.8, kinds=(Precision.FP32,))))

    assert lines[-2] == "INT8 was not measured: no table"
    assert re.match(r"7[0-9] layers are up to 25\.0% faster than their bounds \(.*measured too low", lines[-1])
    near = list(measured_lines(made(accounts, machine, factor=0.99)))[-1]
    assert near == "No layer is faster than its bound by more than the noise of measuring; the nearest by 1.0%."


def test_layers_in_columns(accounts, machine):
    model = made(accounts, machine).models[Precision.INT8]
    head, first, *rest = measured_layer_lines(model)

    assert head.split()[:3] == ["in", "op/B", "bound"]
    assert first.split()[0] == "INT8"
    assert first.split()[5] == "25%"
    assert first.endswith(SLOW)
    assert 1 + len(rest) == len(model.layers) == 72


def test_what_int8_is_worth_in_words(accounts, machine):
    here = list(worth_lines(roofline_of(accounts, machine).worth))
    assert here[0].startswith("What INT8 is worth: 4.")
    assert "layers gain by operations: they wait for compute in FP32" in here[1]
    assert here[-1].startswith("  The table leaves 9 layers in float that could be in INT8: ")

    measured = made(accounts, machine)
    assert measured.times_faster == pytest.approx(roofline_of(accounts, machine).worth.times_faster)
    told = list(worth_lines(roofline_of(accounts, machine).worth, times_measured=1.9))
    assert told[1] == "  measured on this machine: 1.90 times as fast"
    assert made(accounts, machine, kinds=(Precision.FP32,)).times_faster is None

    all_int8 = accounts_of(ROOT / "edge/demo/model/traffic.onnx", table=None, batch=None)
    before_table = list(worth_lines(roofline_of(all_int8, find_machine("orin-nano-8gb-super")).worth))
    assert "gain by bytes alone: they wait for memory" in before_table[1]
    assert "table" not in " ".join(before_table)
    assert roofline_of(all_int8, find_machine("agx-thor-t5000")).worth is None


def test_sentences_of_a_measured_machine_promise_no_memory(accounts, machine):
    first, *_ = summary_sentences(roofline_of(accounts, machine))

    assert "in a working set of that size" in first


def test_the_picture_has_a_dot_below_each_bound_a_line_up_to_it_and_a_slope_for_each_cache(accounts, machine):
    measured = made(accounts, machine)
    page = roofline_page(accounts, [roofline_of(accounts, machine, measured=measured)])
    picture = page.split("<svg")[1]
    computing = [one for one in measured.models[Precision.INT8].layers if one.operations]
    before = [one for one in measured.models[Precision.FP32].layers if one.operations]

    assert len(re.findall(r'<circle class="(?:int8|fp32)', picture)) == len(computing)
    assert picture.count('<circle class="before"') == len(before)
    stems = re.findall(r'<line class="stem \w+" x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"', picture)
    assert len(stems) == len(computing)
    assert all(x1 == x2 and float(y2) < float(y1) for x1, y1, x2, y2 in stems)  # up is less
    assert picture.count('"roof memory cache"') == 2
    flats = re.findall(r'class="roof (?:int8|fp32)" x1="([\d.]+)"', picture)
    tops = [max(float(x) for x in re.findall(r'"roof memory cache" .*? x2="([\d.]+)"', picture))]
    assert min(map(float, flats)) < tops[0]  # they begin at the fastest slope
    assert re.findall(r">(up to [^<]+)<", picture) == ["up to 512 KiB: 200.0 GB/s", "up to 16 MiB: 60.0 GB/s"]
    assert "No layer is faster than its bound." in Page(page).all("p")
    assert not re.search(r'="(nan|inf|-inf)', page)


def test_names_of_an_engine_are_escaped(accounts, machine):
    page = roofline_page(
        accounts, [roofline_of(accounts, machine, measured=made(accounts, machine, name=lambda _: EVIL))]
    )

    assert "<9>" not in page
    assert EVIL not in page
    assert "script" not in Page(page).tags
