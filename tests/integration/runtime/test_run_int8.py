"""`edge-runtime run` in INT8 by a calibration table, against the Q/DQ model in ONNX Runtime on the same frames."""

import hashlib
import json

import numpy as np
import pytest

from edge.config.pipeline import load_pipeline
from edge.errors import EndOfStream
from edge.model.inspect import inspect_model
from edge.model.qdq import insert_qdq
from edge.runtime.serve.parts import build_parts
from edge.vision.boxes import fill_border, paste
from tests.support import models
from tests.support.clips import write_clip
from tests.support.onnxruntime_engine import OnnxRuntimeEngine
from tests.support.tables import table_of, write_table_of

pytestmark = pytest.mark.slow_but(reason="further services over real models: the first row of each test is quick")
FRAMES = 12
SAME, OTHER = 0.01, 0.05  # of a score


@pytest.fixture
def model(tmp_path):
    return models.yolov8(tmp_path / "tiny.onnx")


@pytest.fixture
def run(run, tmp_path):
    write_clip(tmp_path / "clip.mp4", count=FRAMES)
    return run


def streams(*names):
    return [{"id": name, "uri": "clip.mp4"} for name in names]


def lines(folder, schema):
    found = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return [one for one in found if one["schema"] == schema]


def quantized(model):
    """The Q/DQ model, made without the table's file."""
    ranges = {name: tensor.amax for name, tensor in table_of(model).tensors.items()}
    path = model.with_name("quantized.onnx")
    path.write_bytes(insert_qdq(model, inspect_model(model), ranges=ranges, keep_float=()).model)
    return path


def by_onnxruntime(pipeline, model):
    """Detections of each frame of the pipeline's first stream."""
    parts = build_parts(load_pipeline(pipeline))
    engine, source = OnnxRuntimeEngine(inspect_model(model), max_batch=1), parts.sources[0]
    found = []
    source.open()
    try:
        while True:
            frame = source.read(10)
            fill_border(engine.canvases[0][0], frame.letterbox, pad_value=engine.preprocess.pad_value)
            paste(frame.image, engine.canvases[0][0], frame.letterbox)
            engine.start(0, 1)
            found += parts.inference.detector.detect(engine.wait(0), [frame.letterbox])
    except EndOfStream:
        return found
    finally:
        source.close()
        parts.publisher.close()
        parts.inference.engine.close()


def by_score(message):
    return sorted(message["detections"], key=lambda one: -one["score"])


def difference(messages, reference):
    """The largest difference of scores, in order; that of the number of objects counts as 1."""
    pairs = [([one["score"] for one in by_score(m)], r.score) for m, r in zip(messages, reference, strict=True)]
    return max(np.abs(np.subtract(a, b)).max() if len(a) == len(b) else 1.0 for a, b in pairs)


def test_a_pipeline_in_int8_finds_what_the_qdq_model_finds_in_onnxruntime(run, model, tmp_path):
    table = write_table_of(tmp_path / "t.json", model)
    about = {"onnx": str(model), "calibration": "t.json", "precision": "int8"}

    stats, told = run.complete(streams("a"), model=about)

    messages = lines(tmp_path, "edge.detections/1")
    exact, rounded = (by_onnxruntime(tmp_path / "p.yaml", path) for path in (model, quantized(model)))
    assert sum(map(len, rounded)) > FRAMES
    assert difference(messages, rounded) < SAME
    assert difference(messages, exact) > OTHER  # so INT8 was run, and not the float model
    for message, expected in zip(messages, rounded, strict=True):
        boxes = np.array([one["bbox"] for one in by_score(message)])
        np.testing.assert_allclose(boxes[:, :2] + boxes[:, 2:], expected.xyxy[:, 2:], atol=1)
        np.testing.assert_allclose(boxes[:, :2], expected.xyxy[:, :2], atol=1)
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    assert {json.dumps(one["model"], sort_keys=True) for one in messages} == {
        json.dumps(
            {"name": "tiny", "release": None, "engine": None, "calibration": digest[:8], "precision": "int8"},
            sort_keys=True,
        )
    }
    assert stats["precision"] == "int8"
    assert " in int8, 1 stream\n" in told


def test_a_model_that_carries_pairs_runs_as_it_is(run, model, tmp_path):
    path = quantized(model)

    run.complete(streams("a"), model={"onnx": path.name, "precision": "int8"})

    messages = lines(tmp_path, "edge.detections/1")
    assert messages[0]["model"]["precision"] == "int8"
    assert messages[0]["model"]["calibration"] is None
    assert difference(messages, by_onnxruntime(tmp_path / "p.yaml", path)) < SAME


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({}, "p.yaml:1: model.precision: int8 needs a calibration table"),
        ({"calibration": "t.json"}, "p.yaml:1: model.calibration: "),
    ],
    ids=["no-table", "table-of-another-model"],
)
def test_a_service_exits_with_78_before_it_begins(run, model, tmp_path, monkeypatch, about, expected):
    monkeypatch.setenv("INVOCATION_ID", "0" * 32)
    write_table_of(tmp_path / "t.json", models.yolov8(tmp_path / "other.onnx", seed=1))

    stats, told = run.complete(streams("a"), model={"onnx": str(model), "precision": "int8", **about}, expected=78)

    assert stats is None
    assert expected in told
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "out.jsonl").exists()
