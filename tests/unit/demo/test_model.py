"""The shipped model: it is the file that its record describes, and it sees what is in a scene it was not trained on."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from edge.types import ImageSize
from tools.street.scene import CLASSES, Scene

MODEL = Path(__file__).parents[3] / "edge" / "demo" / "model" / "traffic.onnx"
RECORD = json.loads(MODEL.with_suffix(".json").read_text())


def test_the_record_describes_this_file():
    content = MODEL.read_bytes()
    assert RECORD["sha256"] == hashlib.sha256(content).hexdigest()
    assert RECORD["bytes"] == len(content) < 3_000_000
    assert tuple(RECORD["classes"]) == CLASSES


def test_it_was_judged_on_scenes_it_was_not_trained_on_and_is_good_enough():
    first, last = RECORD["training"]["scene_seeds"]
    for figures in RECORD["held_out"]:
        low, high = figures["scene_seeds"]
        assert high < first or low > last
        assert figures["map50"] >= 0.9


def test_it_finds_every_large_vehicle_of_an_unseen_scene():
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is missing: install the dev extra")
    image, truth = Scene(3, ImageSize(width=640, height=360)).frame(40)
    canvas = np.full((320, 320, 3), 114, np.uint8)
    canvas[70:250] = image[::2, ::2]
    feed = (canvas.transpose(2, 0, 1)[None] / 255).astype(np.float32)

    output = onnxruntime.InferenceSession(MODEL).run(["output0"], {"images": feed})[0][0]

    centres, scores = output[:2].T * 2 - [0, 140], output[4:].T
    for (x0, y0, x1, y1), class_id in zip(truth.xyxy, truth.class_id, strict=True):
        if (x1 - x0) * (y1 - y0) > 2000:
            near = np.abs(centres - [(x0 + x1) / 2, (y0 + y1) / 2]).max(axis=1) < 8
            assert scores[near, class_id].max() > 0.5
