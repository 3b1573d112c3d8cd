"""The `engine` section of a pipeline file: what each kind may be told, and how the rest is refused."""

import importlib.util
import json
import subprocess
import sys

import jsonschema
import pytest

from edge.config.pipeline import load_pipeline
from edge.engine.kind import load_kind
from edge.engine.kinds import kinds
from edge.engine.section import choose_engine, read_model, read_section
from edge.errors import ConfigError, EngineError
from tests.support.models import yolov8
from tools.pipeline_schema import pipeline_json_schema

REST = """\
version: 1
model: {onnx: model.onnx}
streams: [{id: gate, uri: clip.mp4}]
publish: {jsonl: "-"}
"""


@pytest.fixture
def load(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "clip.mp4").write_bytes(b"")

    def load_section(text):
        (tmp_path / "p.yaml").write_text(REST + text)
        return load_pipeline(tmp_path / "p.yaml")

    return load_section


@pytest.mark.parametrize("text", ["", "engine: {}", "engine: {kind: auto}"])
def test_a_section_that_says_nothing_is_auto_with_every_default(load, text):
    section = read_section(load(text))

    assert section.kind == "auto"
    assert section.options == {name: load_kind(name).options_type() for name in kinds()}


def test_the_keys_of_a_kind_stand_beside_its_name(load):
    section = read_section(load("engine: {kind: openvino, threads: 2}"))

    assert section.kind == "openvino"
    assert section.options == {"openvino": load_kind("openvino").options_type(threads=2)}


@pytest.mark.parametrize("kind", ["kind: auto, ", ""])
def test_under_auto_the_keys_of_a_kind_stand_below_its_name(load, kind):
    pipeline = load(f"engine: {{{kind}openvino: {{threads: 3}}}}")

    chosen = choose_engine(pipeline)

    assert read_section(pipeline).kind == "auto"
    assert chosen.options == read_section(pipeline).options[chosen.kind]
    assert read_section(pipeline).options["openvino"].threads == 3


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("engine:\n  kind: tensorflow", "p.yaml:6: engine.kind: got 'tensorflow', "),
        ("engine:\n  kind: [auto]", "p.yaml:6: engine.kind: got ['auto'], "),
        (
            "engine:\n  kind: auto\n  threads: 2",
            "p.yaml:7: engine.threads: belongs to one kind of engine; under kind: auto write "
            "engine: {openvino: {threads: 2}}",
        ),
        ("engine:\n  threads: 2", "p.yaml:6: engine.threads: belongs to one kind of engine; under kind: auto write"),
        ("engine:\n  kind: openvino\n  thread: 2", "p.yaml:7: engine.thread: ... 'threads'"),
        (
            "engine:\n  openvino:\n    thread: 2",
            "p.yaml:7: engine.openvino.thread: ... 'threads'",
        ),
        ("engine:\n  opnvino: {}", "p.yaml:6: engine.opnvino: ... 'openvino'"),
        ("engine:\n  kind: openvino\n  openvino: {}", "p.yaml:7: engine.openvino: "),
        ("engine:\n  openvino:\n    threads: 0", "p.yaml:7: engine.openvino.threads: got 0, expected a whole number"),
        ("engine:\n  kind: openvino\n  threads: two", "p.yaml:7: engine.threads: got 'two', expected a whole number"),
        ("engine:\n  openvino: 3", "p.yaml:6: engine.openvino: got 3, expected keys with values"),
    ],
)
def test_a_mistake_is_named_with_its_line_by_whoever_loads_the_pipeline(load, section, expected):
    with pytest.raises(ConfigError) as caught:
        read_model(load(section))

    assert all(part in str(caught.value) for part in expected.split(" ... "))


@pytest.mark.parametrize("section", ["engine: openvino", "engine: null", "engine: [openvino]"])
def test_a_section_that_is_no_mapping_is_refused(load, section):
    with pytest.raises(ConfigError, match=r"p\.yaml:5: engine: got .*, expected keys with values"):
        load(section)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("labels: [person, car]", "labels: 2 labels, the model has 3 classes; give one for each, or use streams"),
        ("input_size: [128, 96]", "input_size: got 128x96, the input of the model is "),
        ("family: yolov5", "family: got yolov5, which the model is not: "),
    ],
)
def test_what_is_said_wrongly_of_the_model_is_a_mistake_at_its_key(load, tmp_path, stated, expected):
    pipeline = load("")
    yolov8(tmp_path / "model.onnx")
    (tmp_path / "p.yaml").write_text(REST.replace("model.onnx", f"model.onnx, {stated}"))

    with pytest.raises(ConfigError, match=rf"p\.yaml:2: model\.{expected}") as caught:
        read_model(load_pipeline(pipeline.path))
    assert "not a detector" not in str(caught.value)


def test_a_kind_that_cannot_run_here_is_refused_with_what_is_missing(load, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "openvino" else find(name))

    with pytest.raises(EngineError, match=r"p\.yaml:5: engine.kind: openvino cannot run here: .*pip install openvino"):
        choose_engine(load("engine: {kind: openvino}"))
    with pytest.raises(EngineError, match=r"p\.yaml: .*nothing runs here: .*not openvino, .*pip install openvino"):
        choose_engine(load(""))


@pytest.mark.parametrize(
    ("section", "is_good"),
    [
        ({}, True),
        ({"kind": "auto", "openvino": {"threads": 2}}, True),
        ({"kind": "openvino", "threads": None}, True),
        ({"kind": "openvino", "openvino": {}}, False),
        ({"kind": "auto", "threads": 2}, False),
        ({"threads": 2}, False),
        ({"kind": "openvino", "threads": 0}, False),
    ],
)
def test_editors_refuse_what_the_program_refuses(section, is_good):
    schema = jsonschema.Draft202012Validator(pipeline_json_schema())
    content = {
        "version": 1,
        "model": {"onnx": "m.onnx"},
        "streams": [{"id": "a", "uri": "a.mp4"}],
        "engine": section,
    }

    assert schema.is_valid(json.loads(json.dumps(content))) == is_good


def test_what_serves_loads_nothing_that_inspects():
    serve = "import sys, edge.runtime.serve.engine, edge.engine.kind; edge.engine.kind.load_kind('openvino')"
    shown = subprocess.run([sys.executable, "-c", f"{serve}; print(*sys.modules)"], capture_output=True, check=True)
    inspects = ("edge.roofline", "edge.engine.openvino.profile")
    assert [name for name in shown.stdout.decode().split() if name.startswith(inspects)] == []
