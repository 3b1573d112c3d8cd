"""What is wrong in zones, lines and masks is told with file, line and path."""

import textwrap

import pytest

from edge.config.pipeline import load_pipeline
from edge.errors import ConfigError

PLACES = {
    "ok": "zones: [{id: yard, polygon: [[0, 0], [1, 0], [1, 1]]}]",
    "bow": "zones: [{id: yard, polygon: [[0, 0], [1, 1], [1, 0], [0, 1]]}]",
    "two": "zones: [{id: yard, polygon: [[0, 0], [1, 1]]}]",
    "outside": "zones: [{id: yard, polygon: [[0, 0], [1.5, 0], [1, 1]]}]",
    "three": "zones: [{id: yard, polygon: [[0, 0, 0], [1, 0], [1, 1]]}]",
    "twins": "lines: [{id: a, start: [0, 0], end: [1, 0]}, {id: a, start: [0, 1], end: [1, 1]}]",
    "point": "lines: [{id: a, start: [0.5, 0.5], end: [0.5, 0.5]}]",
    "label": "lines: [{id: a, start: [0, 0], end: [1, 1], classes: [dog]}]",
    "key": "zone: []",
    "topic": "lines: [{id: 'A/B', start: [0, 0], end: [1, 1]}]",
}


def load(tmp_path, tracking, **stream):
    (tmp_path / "model.onnx").write_bytes(b"")
    keys = "".join(f"\n    {key}: {value}" for key, value in stream.items())
    text = f"""
version: 1
model: {{onnx: model.onnx}}
publish: {{jsonl: '-'}}
streams:
  - id: east
    uri: test://
    classes: [person, car]{keys}
    tracking:
{textwrap.indent(tracking, " " * 6)}
"""
    (tmp_path / "gates.yaml").write_text(text.lstrip())
    return load_pipeline(tmp_path / "gates.yaml")


def test_zones_and_lines_are_read(tmp_path):
    tracking = load(tmp_path, PLACES["ok"] + "\nsettle_s: 0").config.streams[0].tracking

    assert tracking.zones[0].polygon == [[0, 0], [1, 0], [1, 1]]
    assert (tracking.lines, tracking.settle_s, tracking.anchor) == ([], 0, "bottom")


def test_an_empty_section_is_enough(tmp_path):
    assert load(tmp_path, "{}").config.streams[0].tracking is not None


@pytest.mark.parametrize(
    ("tracking", "place", "problem"),
    [
        ("bow", "zones[0].polygon", "crosses itself"),
        ("two", "zones[0].polygon", "expected a list of at least 3"),
        ("outside", "zones[0].polygon[1][0]", "got 1.5, expected a share of the width, 0 to 1"),
        ("three", "zones[0].polygon[0]", "a list of at most 2"),
        ("twins", "lines[1].id", "already lines[0]"),
        ("point", "lines[0].end", "a line has a length"),
        ("label", "lines[0].classes", "reports only person, car"),
        ("key", "zone", "did you mean 'zones'"),
        ("topic", "lines[0].id", "1 to 32 of a-z"),
    ],
)
def test_what_cannot_be_says_where_and_why(tmp_path, tracking, place, problem):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, PLACES[tracking])

    assert f"gates.yaml:9: streams[0].tracking.{place}: " in str(caught.value)
    assert problem in str(caught.value)


def test_too_few_frames_to_follow_anything_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"lost_s: got 1, but max_fps 1 .* give at least 2"):
        load(tmp_path, "lost_s: 1", max_fps=1)
    assert load(tmp_path, "lost_s: 2", max_fps=1)


@pytest.mark.parametrize(
    ("mask", "place"),
    [
        ("black: [{polygon: [[0, 0], [1, 1], [1, 0], [0, 1]]}]", "black[0].polygon"),
        ("black: [{polygon: [[0, 0], [1, 0], [1, 1]], classes: [car]}]", "black[0]"),
        ("ignore: [{polygon: [[0, 0], [1, 0], [1, 1]]}, {polygon: [[0, 0], [1, 0], [0, 0]]}]", "ignore[1].polygon"),
        ("ignore: [{polygon: [[0, 0], [1, 0], [1, 1]], classes: [dog]}]", "ignore[0].classes"),
        ("ignore: [[[0, 0], [1, 0], [1, 1]]]", "ignore[0]"),
    ],
)
def test_a_mask_that_cannot_be_is_refused_where_it_stands(tmp_path, mask, place):
    key, _, value = mask.partition(": ")
    with pytest.raises(ConfigError) as error:
        load(tmp_path, "{}", **{key: value})
    assert f"streams[0].{place}" in str(error.value)
