"""The demo's street and detector through `edge-runtime run`; the identities it was drawn with judge the events."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from edge.demo.cameras import FPS, lay_out_cameras
from tests.support import street
from tests.support.demo_model import MODEL

KINDS = ("detections", "event", "occupancy")
LINES = {"left": 0.3, "middle": 0.5, "right": 0.7}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("street")
    camera = lay_out_cameras(2, folder)[1]
    tracking = {
        "zones": [{"id": "yard", "polygon": [[0.3, 0], [0.7, 0], [0.7, 1], [0.3, 1]], "dwell_s": 2}],
        "lines": [{"id": name, "start": [x, 1], "end": [x, 0]} for name, x in LINES.items()],
        "anchor": "centre",
    }
    content = {
        "version": 1,
        "device": "dev",
        "model": {"onnx": str(MODEL)},
        "publish": {"mode": "all", "jsonl": "out.jsonl"},
        "streams": [{"id": "east", "uri": str(camera.path), "tracking": tracking}],
    }
    (folder / "p.yaml").write_text(json.dumps(content))
    subprocess.run(
        [sys.executable, "-m", "edge.cli.edge_runtime", "run", "--pipeline", str(folder / "p.yaml")],
        check=True,
        capture_output=True,
        timeout=300,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
    )
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return {kind: [line for line in lines if line["schema"] == f"edge.{kind}/1"] for kind in KINDS}


def test_events_are_numbered_without_holes(said):
    assert [event["seq"] for event in said["event"]] == list(range(1, len(said["event"]) + 1))
    assert len({(event["device"], event["stream"], event["epoch"]) for event in said["event"]}) == 1


def test_lines_are_crossed_as_often_as_the_street_says(said):
    assert FPS == 1_000_000_000 // street.FRAME_NS
    counted = Counter((event["line"], event["direction"]) for event in said["event"] if event["kind"] == "cross")
    wrong = total = 0
    for name, x in LINES.items():
        truth = Counter(way for _, way in street.true_crossings(street.SEEDS[1], x))
        wrong += abs(truth[1] - counted[name, "forward"]) + abs(truth[-1] - counted[name, "backward"])
        total += sum(truth.values())

    assert total > 30
    assert wrong <= 0.1 * total


def test_who_came_into_a_zone_went_out_of_it_or_was_there_at_the_end(said):
    kinds = Counter(event["kind"] for event in said["event"])

    assert kinds["enter"] + kinds["appear"] == kinds["leave"] + kinds["vanish"] > 10
    assert {event["reason"] for event in said["event"] if event["kind"] == "vanish"} <= {"lost", "stopped"}


def test_most_detections_carry_a_number_that_events_use_too(said):
    numbers = [found["track_id"] for frame in said["detections"] for found in frame["detections"]]
    events = {event["track_id"] for event in said["event"]}

    assert sum(number is not None for number in numbers) > 0.85 * len(numbers)
    assert events <= set(numbers)


def test_the_last_occupancy_says_that_nobody_is_followed_any_more(said):
    *before, last = said["occupancy"]

    assert (last["state"], last["objects"], last["zones"]) == ("stopped", {}, {"yard": {}})
    assert before
    crossed = sum(event["kind"] == "cross" for event in said["event"])
    assert sum(sum(way.values()) for line in last["lines"].values() for way in line.values()) == crossed


def test_a_label_that_the_model_does_not_have_is_told_where_it_stands(tmp_path):
    line = {"id": "gate", "start": [0, 0], "end": [1, 1], "classes": ["car", "dog"]}
    content = {
        "version": 1,
        "model": {"onnx": str(MODEL)},
        "publish": {"jsonl": "out.jsonl"},
        "streams": [{"id": "east", "uri": "test://", "tracking": {"lines": [line]}}],
    }
    (tmp_path / "p.yaml").write_text(json.dumps(content))
    command = [sys.executable, "-m", "edge.cli.edge_runtime", "run", "--pipeline", str(tmp_path / "p.yaml")]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    assert ended.returncode == 2
    assert "p.yaml:1: streams[0].tracking.lines[0].classes: got 'dog', the labels of the model are car" in ended.stderr
    assert not (tmp_path / "out.jsonl").exists()
