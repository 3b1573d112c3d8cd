"""The page of a comparison: parsed as a browser would, from values made up here."""

import dataclasses
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from edge.cli.commands.compare import layer_error_lines
from edge.cli.comparison import (
    comparison_page,
    comparison_summary,
    number,
    percent,
    verdict_lines,
)
from edge.evaluate.layers import ComparedLayer, LayerError, LayerTimes, Quantization, worst_layers
from edge.quantize.comparison import Comparison
from tests.support.values import model_spec

EVIL = '<script>alert("1")</script>&amp;'
VOID = {"meta", "br", "img", "link", "input"}


class Page(HTMLParser):
    """Checks nesting, and keeps texts by the element they are in, and all attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.attributes = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag):
        return [text for where, text in self.texts if where == tag]


def require_alone(text, *, own):
    """Nothing is fetched; each colour is used, and has a value in the dark; each number is one. `own`: a path in it."""
    page = Page(text)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text.replace(own, ""))
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not {"src", "href", "srcset"} & {name for name, _ in page.attributes}
    light, dark = (set(re.findall(r"(--\w+):", part)) for part in text.split("prefers-color-scheme: dark")[:2])
    assert light == dark == set(re.findall(r"var\((--\w+)\)", text))
    assert not re.search(r'="(nan|inf|-inf)', text)


def an_error(name, *, sqnr_db=20.0, is_int8=True, float_ms=2.0, int8_ms=1.0):
    times = None
    if float_ms is not None:
        times = LayerTimes(float_s=np.array([float_ms / 1e3]), int8_s=np.array([int8_ms / 1e3]))
    return LayerError(
        layer=ComparedLayer(
            name=name, op_type="Conv", input_="x", output=name, macs=10,
            quantization=Quantization(range_=4.0, step=4 / 127) if is_int8 else None,
            float_copy=f"{name}/float" if is_int8 else None,
        ),
        sqnr_db=sqnr_db, input_sqnr_db=30.0, own_sqnr_db=sqnr_db + 2 if is_int8 else None,
        clipped_share=0.02 if is_int8 else None, dead_share=0.00001 if is_int8 else None, mac_share=0.25,
        times=times,
    )  # fmt: skip


def comparison(*errors):
    spec = model_spec(Path(f"/x/{EVIL}.onnx"), name=EVIL, side=96, batch=1)
    return Comparison(
        spec=spec, table=Path("t.calib.json"), images=7, engine="openvino 1.2.3", output_sqnr_db=31.25, layers=errors,
    )  # fmt: skip


MIXED = comparison(
    an_error(EVIL),
    an_error("/kept/Conv", is_int8=False),
    an_error("/bad/Conv", sqnr_db=3.0),
    an_error("/untimed/Conv", float_ms=None, sqnr_db=28.0),
    an_error("/perfect/Conv", sqnr_db=math.inf),
    an_error("/slow/Conv", sqnr_db=28.0, int8_ms=3.0),
    an_error("/empty/Conv", sqnr_db=math.nan),
)


def test_the_page_is_well_formed_and_says_what_was_compared():
    page = Page(comparison_page(MIXED))

    assert page.all("title")[0] == f"INT8 against float: {EVIL}"
    facts = page.all("dd")
    assert any(EVIL in text for text in facts)
    assert {"t.calib.json", "7"} <= set(facts)
    assert any("openvino 1.2.3; times of this machine" in text for text in facts)
    assert [text for text in page.all("td") if text.endswith("Conv") and "/" in text] == [
        error.layer.name for error in MIXED.layers[1:]
    ]


def test_names_are_escaped_everywhere():
    text = comparison_page(MIXED)

    assert "script" not in Page(text).tags
    assert EVIL in Page(text).all("td")
    assert EVIL not in text


def test_it_stands_alone_in_light_and_dark_and_every_coordinate_is_a_number():
    for found in (MIXED, comparison(an_error("/only/Conv", float_ms=None, sqnr_db=math.nan))):
        require_alone(comparison_page(found), own="/x/")


def test_every_layer_is_in_both_plots_and_float_ones_are_marked():
    page = comparison_page(MIXED)
    points = page.split("<svg")[1]

    assert points.count("<title>") == len(MIXED.layers)
    assert points.count("<circle") == 5  # without the infinite one and the one without signal
    assert points.count('class="float"') == 1
    assert points.count('class="missing"') == 2
    assert page.split("<svg")[2].count("<title>") == 2 * len(MIXED.layers)


def test_taller_bars_are_longer_times():
    page = comparison_page(comparison(an_error("/a", float_ms=4.0, int8_ms=1.0)))

    heights = {
        style: float(height)
        for style, height in re.findall(r'<rect class="(float|int8)"[^>]*height="([\d.]+)"', page.split("<svg")[2])
    }
    assert heights["float"] == pytest.approx(4 * heights["int8"], rel=0.01)


def test_lines_star_the_worst_and_end_with_whole_names():
    lines = list(layer_error_lines(MIXED, worst_layers(MIXED.layers, count=1)))

    assert len(lines) == 1 + len(MIXED.layers)
    assert [line[0] for line in lines] == [" ", " ", " ", "*", " ", " ", " ", " "]
    assert all(line.endswith(f"  {error.layer.name}") for line, error in zip(lines[1:], MIXED.layers, strict=True))


def test_the_summary_counts_every_layer_once():
    told = comparison_summary(MIXED)

    assert told.startswith(
        "Output 31.2 dB. Of 7 layers 2 pay, 1 save no time, 1 cost accuracy, 1 stay in float, 2 cannot"
    )
    assert "The 6 whose time is known take 12.0 ms per frame in float, 8.0 ms in the INT8 model" in told
    untimed = dataclasses.replace(MIXED, layers=(an_error("/a", float_ms=None),))
    assert "tells the time of none" in comparison_summary(untimed)


def test_every_verdict_is_explained():
    assert {name for name, _ in verdict_lines()} >= {error.verdict.value for error in MIXED.layers}


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, "0"), (None, "-"), (math.nan, "-"), (1e-6, "<0.01%"), (-1e-6, "-<0.01%"), (0.1234, "12.34%")],
)
def test_a_small_share_is_told_apart_from_none(share, expected):
    assert percent(share) == expected


def test_numbers_that_are_none_are_dashes():
    assert [number(value, ".1f") for value in (None, math.nan, 2.25, math.inf)] == ["-", "-", "2.2", "inf"]
