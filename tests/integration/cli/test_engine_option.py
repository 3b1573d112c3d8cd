"""`--engine` and `--calibrator` of calibrate, evaluate and compare, with ONNX Runtime as one more kind of engine."""

import json
import shutil

import cv2
import numpy as np
import pytest

from edge.calibrate.table import read_table
from edge.engine.kind import load_kind
from edge.engine.kinds import kinds
from edge.errors import EngineError
from edge.model import graph
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import quantizable_tensors
from edge.quantize import forms
from tests.integration.cli.test_calibrate import calibrate, command, content_of, few_layers, refused, write_labels
from tests.support import models
from tests.support.tables import all_tensors

pytestmark = [
    pytest.mark.usefixtures("third_kind"),
    pytest.mark.slow_but(reason="commands on further models and options: the first row of each test is quick"),
]

SIZE = 96


def largest(place):
    """The largest |x| of every tensor over all images, by ONNX Runtime on canvases that are drawn here."""
    found = {}
    for path in (place / "images").iterdir():
        canvas = np.full((SIZE, SIZE, 3), 114, np.uint8)
        canvas[12:84] = cv2.resize(cv2.imread(str(path)), (SIZE, 72))[..., ::-1]
        tensors = all_tensors(place / "m.onnx", {"images": canvas.transpose(2, 0, 1)[None].astype(np.float32) / 255})
        for name, values in tensors.items():
            found[name] = max(found.get(name, 0.0), float(np.abs(values).max()))
    return found


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "auto"])
def test_the_table_names_the_engine_that_made_it(place, engine):
    calibrate(place, "--method", "minmax", "--engine", engine)

    found = read_table(place / "m.calib.json")

    by = "openvino" if engine == "openvino" else "onnxruntime"  # which `auto` likes best here
    assert found.made_by.engine.split()[0] == by
    expected = largest(place)
    for name in quantizable_tensors(load_graph(place / "m.onnx")):
        assert found.tensors[name].amax == pytest.approx(expected[name], rel=0.02), name


def test_auto_searches_and_proves_by_the_engine_that_is_asked_for(place, monkeypatch):
    monkeypatch.setattr("edge.engine.openvino.compiler.import_openvino", lambda: pytest.fail("OpenVINO was asked"))

    shown = json.loads(calibrate(place, "--engine", "onnxruntime", "--json").stdout)

    assert shown["evidence"]["metric"] == "mAP50-95 against float"
    assert read_table(place / "m.calib.json").made_by.engine.startswith("onnxruntime ")


def test_evaluate_and_compare_run_by_the_engine_that_is_asked_for(place, monkeypatch):
    calibrate(place, "--method", "mse", "--engine", "openvino")
    monkeypatch.setattr("edge.engine.openvino.compiler.import_openvino", lambda: pytest.fail("OpenVINO was asked"))
    folders = ("--images", place / "images", "--engine", "onnxruntime", "--json")

    measured = command("evaluate", place / "m.onnx", *folders, "--labels", place / "labels")
    compared = command("compare", place / "m.onnx", *folders, "--table", place / "m.calib.json")

    assert json.loads(measured.stdout)["engine"].startswith("onnxruntime ")
    assert json.loads(compared.stdout)["engine"].startswith("onnxruntime ")


def test_an_engine_that_tells_no_times_compares_without_them(place, monkeypatch):
    def refuse(*arguments, **settings):
        raise EngineError("layers of this engine have no times")

    calibrate(place, "--method", "mse", "--engine", "openvino")
    monkeypatch.setattr(load_kind("onnxruntime"), "profiler", refuse, raising=False)

    done = command(
        "compare", place / "m.onnx", "--images", place / "images", "--table", place / "m.calib.json",
        "--engine", "onnxruntime", "--json",
    )  # fmt: skip

    assert "warning: no times: layers of this engine have no times" in done.stderr
    layers = json.loads(done.stdout)["layers"]
    assert layers
    assert all(layer["sqnr_db"] is not None for layer in layers)


@pytest.mark.parametrize("name", ["calibrate", "evaluate", "compare"])
def test_an_engine_that_is_not_there_is_refused_with_those_that_are(place, name):
    told = command(name, place / "m.onnx", "--images", place / "images", "--engine", "none", expected=2).stderr

    assert f"'none'; expected one of auto, {', '.join(kinds())}" in told


def test_an_engine_that_cannot_run_here_says_what_is_missing_and_how_to_get_it(place, monkeypatch):
    monkeypatch.setattr("edge.engine.onnxruntime.facts.importlib.util.find_spec", lambda name: None)

    told = refused(place, "--engine", "onnxruntime")

    assert told == (
        "error: engine onnxruntime: cannot run here: ONNX Runtime is not installed: pip install onnxruntime"
    )


@pytest.mark.slow(reason="searches a table")
def test_auto_reads_the_file_once_and_makes_each_model_once(place, monkeypatch):
    reads, made, read, make = [], [], graph.read_file, forms.Forms._made

    def counted_read(path, **settings):
        reads.append(path)
        return read(path, **settings)

    def counted_make(self, form):
        made.append(self._table)
        return make(self, form)

    monkeypatch.setattr(graph, "read_file", counted_read)
    monkeypatch.setattr("edge.model.graph.load_graph", lambda path: pytest.fail(f"{path} is read again"))
    monkeypatch.setattr(forms.Forms, "_made", counted_make)

    calibrate(place, "--method", "auto", "--labels", place / "labels", "--max-drop", 100, "--engine", "openvino")

    assert reads == [place / "m.onnx"]
    # One for each method that is tied with the best (docs/adr/0003): the one that is written was proven as it was made.
    finished = [table for table in made if table.method == "auto"]
    assert len({str(table.tensors) for table in finished}) == len(finished) >= 1
    assert len(made) > 10  # those that were tried


def test_a_calibrator_s_cache_becomes_the_table(place):
    done = calibrate(place, "--engine", "onnxruntime", "--calibrator", "minmax", "--json", "--keep-float", "Conv_0")

    table, shown = read_table(place / "m.calib.json"), json.loads(done.stdout)
    expected = largest(place)
    assert set(table.tensors) <= set(expected)  # the constant's scale of 0 is left out
    assert "images" in table.tensors
    for name, tensor in table.tensors.items():
        assert tensor.amax == pytest.approx(expected[name], rel=1e-3), name
        assert tensor.method == "calibrator"
    assert (table.method, table.made_by.engine) == ("minmax", "onnxruntime 10.3.0")
    assert (table.imported.tensorrt, table.imported.calibrator) == ("10.3.0", "MinMaxCalibration")
    assert (table.dataset.images, shown["images"], shown["method"]) == (8, 8, "minmax")
    assert (table.keep_float, dict(table.float_reasons)) == (("Conv_0",), {"Conv_0": "asked for"})
    assert "ranges come from 8 images only" in done.stderr
    command("table", "lint", place / "m.calib.json", "--model", place / "m.onnx")
    command("evaluate", place / "m.onnx", "--images", place / "images", "--labels", place / "labels",
            "--table", place / "m.calib.json")  # fmt: skip


def test_with_labels_it_is_proven_on_other_images(place):
    options = ("--engine", "onnxruntime", "--calibrator", "minmax", "--labels", place / "labels", "--max-drop", 100)

    calibrate(place, *options, "--batch", 2)

    table = read_table(place / "m.calib.json")
    assert (table.dataset.images, table.evidence.images, table.evidence.metric) == (4, 4, "mAP50-95")


def test_a_promise_that_the_calibrator_s_ranges_break_writes_nothing(place):
    hard = few_layers(place / "hard.onnx", widest=300.0)
    shutil.rmtree(place / "labels")
    write_labels(place / "labels", inspect_model(hard), sorted((place / "images").iterdir()))
    options = ("--engine", "onnxruntime", "--calibrator", "minmax", "--labels", place / "labels", "--max-drop", 0)

    told = refused(place, *options, model="hard.onnx", expected=4)

    assert "so nothing was written" in told


def test_images_that_make_no_whole_batches_are_counted(place):
    models.yolov5(place / "any-batch.onnx", size=SIZE)
    options = ("--engine", "onnxruntime", "--calibrator", "minmax", "--batch", 3)

    told = refused(place, *options, model="any-batch.onnx")

    assert "8 images make no whole batches of 3" in told
    assert "add 1 images or remove 2" in told


def test_an_image_that_cannot_be_decoded_is_named_through_the_library(place):
    (place / "images" / "cut.png").write_bytes((place / "images" / "0.png").read_bytes()[:60])

    told = refused(place, "--engine", "onnxruntime", "--calibrator", "minmax")

    assert "cut.png" in told


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"no cache\n",
        b"TRT-100300-EntropyCalibration2\n",
        b"TRT-100300-EntropyCalibration2\nimages: 7fc00000\n",
        b"TRT-100300-EntropyCalibration2\nimages: 3c010204\n",
    ],
    ids=["bytes", "text", "empty", "nan", "tensors missing"],
)
def test_a_cache_that_makes_no_usable_table_is_refused(place, monkeypatch, content):
    monkeypatch.setattr(load_kind("onnxruntime"), "calibrator_cache", lambda *a, **k: content, raising=False)

    told = refused(place, "--engine", "onnxruntime", "--calibrator", "minmax")

    assert told.startswith("error: the cache of onnxruntime's minmax")


@pytest.mark.parametrize(
    ("engine", "told"),
    [("openvino", "choose ranges by --method"), ("onnxruntime", "'entropy2'; expected one of minmax")],
)
def test_a_calibrator_that_an_engine_does_not_have_is_refused_with_what_there_is(place, engine, told):
    assert told in refused(place, "--engine", engine, "--calibrator", "entropy2")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--calibrator", "minmax", "--method", "mse"), "chooses ranges itself: leave out --method"),
    ],
)
def test_options_that_make_no_sense_together_are_usage_errors(place, monkeypatch, options, problem):
    monkeypatch.chdir(place)
    before = content_of(place)

    told = calibrate(place, "--engine", "onnxruntime", *options, expected=2).stderr

    assert problem in told
    assert content_of(place) == before
