"""The page of rooflines, parsed as a browser would, of the demo's model."""

import dataclasses
import math
import re
from pathlib import Path

import pytest

from edge.cli.output import amount
from edge.cli.roofline_lines import machine_lines, roofline_of, roofline_summary_lines, summary_sentences
from edge.cli.roofline_page import roofline_page
from edge.quantize.account import accounts_of
from edge.roofline.machines import find_machine
from edge.types import Precision
from tests.support.browser_page import EVIL, Page, require_alone
from tests.support.demo_model import MODEL, TABLE


@pytest.fixture(scope="module")
def accounts():
    return accounts_of(MODEL, table=TABLE, batch=None)


@pytest.fixture(scope="module")
def page(accounts):
    names = ("orin-nano-8gb-super", "agx-orin-64gb/15W", "agx-thor-t5000")
    return roofline_page(accounts, [roofline_of(accounts, find_machine(name)) for name in names])


def test_it_is_well_formed_and_says_of_what_it_is(page):
    parsed = Page(page)

    assert parsed.all("title")[0] == "Rooflines: traffic"
    assert "by traffic.calib.json" in parsed.all("dd")
    assert [text for text in parsed.all("h2") if "Orin" in text or "Thor" in text] == [
        "Jetson Orin Nano 8 GB, Super (orin-nano-8gb-super)",
        "Jetson AGX Orin 64 GB, MODE_15W (agx-orin-64gb/MODE_15W)",
        "Jetson AGX Thor T5000 (agx-thor-t5000)",
    ]
    assert any("not published, so not bounded here: INT8, FP16" in text for text in parsed.all("p"))
    assert sum("advertised: 67 TOPS, sparse INT8" in text for text in parsed.all("p")) == 1


def test_it_stands_alone_in_light_and_dark_and_every_coordinate_is_a_number(page):
    require_alone(page, own=str(MODEL.parents[3]))


def test_names_are_escaped(accounts):
    evil = {
        kind: dataclasses.replace(
            one, layers=tuple(dataclasses.replace(layer, name=EVIL, fused=(EVIL,)) for layer in one.layers)
        )
        for kind, one in accounts.by_precision.items()
    }
    renamed = dataclasses.replace(
        accounts, by_precision=evil, spec=dataclasses.replace(accounts.spec, name=EVIL, path=Path(EVIL))
    )
    text = roofline_page(renamed, [roofline_of(renamed, find_machine("rtx-3080"))])

    assert "script" not in Page(text).tags
    assert EVIL not in text


def test_each_layer_that_computes_has_a_dot_each_precision_a_roof_and_a_ridge(page, accounts):
    picture = page.split("<svg")[1]
    int8, fp16 = (accounts.by_precision[kind] for kind in (Precision.INT8, Precision.FP16))
    computing = [layer for layer in int8.layers if layer.operations]

    assert len(re.findall(r'<circle class="(?:int8|fp16)', picture)) == len(computing)
    assert picture.count('<circle class="before"') == sum(1 for layer in fp16.layers if layer.operations)
    assert {name for name in ("int8", "fp16", "fp32") if f'"roof {name}"' in picture} == {"int8", "fp16", "fp32"}
    assert re.findall(r'class="mark (\w+)"[^>]*>(\d+)<', picture) == [("fp32", "20"), ("fp16", "163"), ("int8", "327")]
    assert page.split("<svg")[2].count("<rect") == sum(len(one.layers) for one in accounts.by_precision.values())


def test_the_longest_layers_are_named_by_their_numbers(page, accounts):
    bound = roofline_of(accounts, find_machine("orin-nano-8gb-super")).fastest
    longest = max((one for one in bound.layers if one.layer.operations), key=lambda one: one.least_s)

    named = re.findall(r"<b>(\d)</b> (\S+) \(", page.split("At a glance")[1].split("Where the least time")[0])
    assert [number for number, _ in named] == list("12345")
    assert named[0][1] == longest.layer.name
    marked = re.findall(r'class="mark" [^>]*>(\d)<', page.split("<svg")[1])
    assert marked[0] == "1"
    assert set(marked) <= set("12345")


def test_a_roof_begins_at_its_ridge_and_strips_are_as_long_as_their_times(page, accounts):
    picture, strips = page.split("<svg")[1:3]
    flat = float(re.search(r'class="roof int8" x1="([\d.]+)"', picture)[1])
    ridge = float(re.search(r'class="ridge int8" x1="([\d.]+)"', picture)[1])
    rows = {}
    for y, width in re.findall(r'<rect class="\w+" x="[\d.]+" y="([\d.]+)" width="([\d.]+)"', strips):
        rows[y] = rows.get(y, 0.0) + float(width)
    bounds = roofline_of(accounts, find_machine("orin-nano-8gb-super")).bounds

    assert flat == ridge
    longest, *shorter = rows.values()
    assert longest == pytest.approx(1040 - 64 - 110, abs=1)
    assert [length / longest for length in shorter] == pytest.approx(
        [bound.least_s / bounds[0].least_s for bound in bounds[1:]], abs=0.01
    )


def test_figures_in_words_are_of_a_frame_and_of_the_power_mode():
    accounts = accounts_of(MODEL, table=None, batch=4)
    roofline = roofline_of(accounts, find_machine("orin-nx-16gb/10W"))
    fp16, int8 = roofline.bounds[1:]
    row = list(roofline_summary_lines([roofline]))[-1].split()

    assert float(row[0]) == pytest.approx(1e3 * int8.least_s / 4, abs=0.001)
    assert float(row[2]) == pytest.approx(4 / int8.least_s, rel=0.01)
    share = int8.account.moved_bytes / fp16.account.moved_bytes
    assert f"INT8 leaves {share:.0%} of the bytes of FP16, has 2 times" in list(summary_sentences(roofline))[-1]
    told = list(machine_lines(roofline.machine))[-1]
    assert told.startswith("advertised: 100 TOPS, sparse INT8, of GPU and DLA together; here 10 dense, 20.1 sparse")
    assert told.endswith(" and 8.81 sparse on its DLA in this power mode")


def test_dots_lie_on_their_roof_and_their_area_is_their_share(page, accounts):
    picture = page.split("<svg")[1]
    bound = roofline_of(accounts, find_machine("orin-nano-8gb-super")).fastest
    found = {
        name: tuple(map(float, values))
        for *values, name in re.findall(
            r'<circle class="(?:int8|fp16)[^"]*" cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"><title>(\S+) ', picture
        )
    }
    ticks = {float(value): float(x) for x, value in re.findall(r'x="([\d.]+)" [^>]*middle">([\d.]+)</text>', picture)}
    slope = re.search(r'class="roof memory" x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"', picture)
    x1, y1, x2, y2 = map(float, slope.groups())
    roof = {kind: float(y) for kind, y in re.findall(r'class="roof (\w+)" x1="[\d.]+" y1="([\d.]+)"', picture)}
    longest = max(bound.layers, key=bound.share)

    for one in bound.layers:
        if one.layer.operations:
            x, y, radius = found[one.layer.name]
            decade = 10.0 ** math.floor(math.log10(one.layer.intensity))
            part = math.log10(one.layer.intensity / decade)
            assert x == pytest.approx(ticks[decade] + part * (ticks[10 * decade] - ticks[decade]), abs=0.2)
            assert y == pytest.approx(
                max(y1 + (x - x1) / (x2 - x1) * (y2 - y1), roof[one.layer.precision.value]), abs=0.3
            )
            share = (radius / found[longest.layer.name][2]) ** 2
            assert radius == 2.5 or share == pytest.approx(bound.share(one) / bound.share(longest), abs=0.02)


def test_amounts_are_in_three_digits():
    assert [amount(value) for value in (0, 7, 999.4, 999.6, 1000, 12345, 1e6, 4.474e9, 33.4e12)] == [
        "0", "7", "999", "1.00 k", "1.00 k", "12.3 k", "1.00 M", "4.47 G", "33.4 T",
    ]  # fmt: skip
    assert not any(". " in amount(10**power) for power in range(16))
    assert all(math.isclose(float(amount(v).split()[0]), v / 1e3, rel_tol=0.01) for v in (1234, 56789, 456789))
