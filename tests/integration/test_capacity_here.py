"""`capacity --machine this`: the machine and the model on it are measured, and what follows is by hand."""

from __future__ import annotations

import dataclasses

import pytest

from edge.capacity import here as here_module
from edge.capacity.demand import Origin, StreamDemand, video_from_text
from edge.capacity.fit import answer_of
from edge.capacity.here import measured_platform
from edge.capacity.loads import loads_of
from edge.capacity.work import model_of_pipeline, work_of
from edge.config.load import load_pipeline
from edge.errors import ConfigError, EngineError
from edge.types import Precision
from tests.support import models

VIDEO = video_from_text("640x360@15/h264")


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    models.yolov8(folder / "net.onnx")
    (folder / "p.yaml").write_text(
        "version: 1\nmodel: {onnx: net.onnx}\nengine: {kind: openvino}\nbatch: {max_frames: 2}\n"
        "publish: {jsonl: '-'}\nstreams:\n  - {id: a, uri: 'rtsp://x/a'}\n  - {id: b, uri: 'rtsp://x/b'}\n"
    )
    return load_pipeline(folder / "p.yaml")


@pytest.fixture(scope="module")
def work(pipeline):
    cameras = [
        StreamDemand(id=one.id, video=VIDEO, wanted_fps=15, origin=Origin.STATED) for one in pipeline.config.streams
    ]
    return work_of(pipeline, model_of_pipeline(pipeline), cameras)


@pytest.fixture(scope="module")
def here(pipeline, work):
    return measured_platform("this/1", pipeline, work)


def test_the_engine_was_measured_and_takes_no_less_than_its_bound(work, here):
    loads = loads_of(work, here)

    assert here.called.startswith("this")
    assert here.frame_s > 0
    assert here.core_s > 0
    assert loads.batch_s.typical == pytest.approx(max(2 * here.frame_s, loads.batch_s.least))
    assert 0 < loads.batch_s.least <= loads.batch_s.typical
    assert here.memory_bytes > 1e8


def test_only_the_precision_of_the_pipeline_is_measured(pipeline, work, monkeypatch):
    asked = []

    def measured(accounts, **settings):
        asked.append((set(accounts.by_precision), accounts.spec.name))
        raise EngineError("enough")

    monkeypatch.setattr(here_module, "measured_here", measured)
    with pytest.raises(EngineError, match="enough"):
        measured_platform("this/1", pipeline, work)

    assert asked == [({work.model.precision}, "net")]


def test_the_processor_does_all_of_it(work, here):
    quick = dataclasses.replace(here, core_s=0.009, cores=2, doubt="busy")
    loads = loads_of(work, quick)
    decode_ms = 0.49 + 2.36 * 640 * 360 / (1920 * 1080)
    engine = max(30 * 0.009 / 2, 30 / 2 * loads.batch_s.least)

    assert [load.name for load in loads.each] == ["processor", "memory", "broker"]
    assert loads.first.share.typical == pytest.approx(engine + 30 * (decode_ms + 0.68) / 1e3 / 2)
    assert loads.first.used.typical == pytest.approx(2 * loads.first.share.typical)
    assert loads.first.note.endswith("Careful: busy")
    assert answer_of(work, quick, headroom=0.3).fit.typical > 0


def test_what_cannot_be_measured_says_why(pipeline, work):
    half = dataclasses.replace(work, model=dataclasses.replace(work.model, precision=Precision.FP16))

    with pytest.raises(ConfigError, match="expected a number of cores"):
        measured_platform("this/999", pipeline, work)
    with pytest.raises(EngineError, match="was not measured in fp16: engines of a processor compute in fp32 and int8"):
        measured_platform("this/1", pipeline, half)
