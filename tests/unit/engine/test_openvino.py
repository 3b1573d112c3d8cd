"""What is particular to the CPU engine: how rows become requests, precision, damaged files."""

import dataclasses
import os
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest

from edge.engine.kind import EngineRequest, load_kind
from edge.engine.openvino.binding import why_int8_in_float
from edge.engine.openvino.engine import OpenVinoActivations, OpenVinoEngine
from edge.errors import CalibrationError, EngineError
from edge.model.inspect import inspect_model
from edge.model.qdq import insert_qdq
from edge.quantize.forms import Forms
from edge.types import Precision
from tests.support import models
from tests.support.onnxruntime_engine import OnnxRuntimeEngine
from tests.support.tables import minmax, table_of
from tests.support.values import canvases

KIND = load_kind("openvino")


def spec_of(make, path, **settings):
    return inspect_model(make(path / "model.onnx", **settings))


def infer(engine, images):
    engine.canvases[0][: len(images)] = images
    engine.start(0, len(images))
    return engine.wait(0).copy()


def test_a_model_fixed_at_two_runs_three_rows(tmp_path):
    spec = spec_of(models.yolov8, tmp_path, batch=2)
    dynamic = spec_of(models.yolov8, tmp_path, batch=None)
    images = canvases(spec, rows=3)

    output = infer(OpenVinoEngine(spec, max_batch=3), images)

    expected = infer(OnnxRuntimeEngine(dynamic, max_batch=3), images)
    np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-2)


def test_fp32_is_computed_in_f32_even_where_the_default_would_be_bf16(tmp_path):
    spec = spec_of(models.yolov8, tmp_path)
    engine = OpenVinoEngine(spec, max_batch=1)

    compiled = engine._compiler.compile(1)

    assert str(compiled.get_property("INFERENCE_PRECISION_HINT")).endswith("'float32'>")


def test_fp16_on_a_cpu_without_it_is_refused(tmp_path, monkeypatch):
    spec = spec_of(models.yolov8, tmp_path)
    monkeypatch.setattr("edge.engine.openvino.binding._capabilities", lambda: ["FP32", "INT8"])

    with pytest.raises(EngineError, match="precision fp16: this CPU computes FP32, INT8; use fp32 or int8"):
        OpenVinoEngine(spec, max_batch=1, precision=Precision.FP16)


def test_closing_while_rows_are_inferred_waits_for_them(tmp_path):
    # Memory that a running request reads must not be freed: this ended in a crash of the process.
    spec = spec_of(models.yolov8, tmp_path)
    for _ in range(20):
        engine = OpenVinoEngine(spec, max_batch=4)
        engine.start(0, 4)
        engine.start(1, 4)
        buffers = engine._rows
        engine.close()
        assert all(buffer._started == [] for buffer in buffers)


def test_a_model_that_was_damaged_after_inspection_is_an_engine_error(tmp_path):
    spec = spec_of(models.yolov8, tmp_path)
    spec.path.write_bytes(spec.path.read_bytes()[:1000])

    with pytest.raises(EngineError, match=r"model\.onnx: OpenVINO cannot"):
        OpenVinoEngine(spec, max_batch=1)


def request(precision=Precision.FP32, max_batch=1, **options):
    return EngineRequest(precision=precision, max_batch=max_batch, options=KIND.options_type(**options))


def test_int8_of_a_float_model_without_a_table_is_refused(tmp_path):
    with pytest.raises(CalibrationError, match="INT8 without a calibration table is never run"):
        KIND.build(Forms(spec_of(models.yolov8, tmp_path)), request(Precision.INT8))


def test_a_plan_is_all_that_is_needed(tmp_path):
    spec = spec_of(models.yolov8, tmp_path)
    images = canvases(spec, rows=2)
    expected = infer(OnnxRuntimeEngine(spec, max_batch=2), images)
    plan = KIND.build(Forms(spec), request(max_batch=2))
    spec.path.unlink()

    for options in ({}, {"threads": 1}):
        found = infer(KIND.load(plan.data, spec, request(max_batch=2, **options)), images)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-2)


def test_an_int8_plan_carries_its_pairs_and_says_how_they_are_computed(tmp_path):
    spec = spec_of(models.yolov8, tmp_path)
    forms = Forms(spec, table_of(spec.path))

    plan = KIND.build(forms, request(Precision.INT8))

    assert b"QuantizeLinear" in plan.data
    assert plan.report["int8_mac_share"] > 0.9
    assert plan.report["why"] == (why_int8_in_float() or "this CPU sums INT8 exactly")
    assert np.isfinite(infer(KIND.load(plan.data, spec, request(Precision.INT8)), canvases(spec, rows=1))).all()


@pytest.mark.parametrize("damage", [lambda plan: plan[:1000], lambda plan: b"", lambda plan: b"\0" * 5000])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
def test_a_damaged_plan_is_named_and_not_crashed_on(tmp_path, damage, precision):
    spec = spec_of(models.yolov8, tmp_path)
    plan = KIND.build(Forms(spec, table_of(spec.path)), request(precision))

    with pytest.raises(EngineError, match="model"):
        KIND.load(damage(plan.data), spec, request(precision))


def test_progress_begins_and_ends(tmp_path):
    told = []

    KIND.build(Forms(spec_of(models.yolov8, tmp_path)), request(), on_progress=lambda *one: told.append(one))

    assert (told[0][1], told[-1][1]) == (0.0, 1.0)


class NetWithNeck(models.Net):
    """A level's features joined and convolved once more, as every real detector has it."""

    def levels(self):
        return [
            self.silu(self.conv(self.op("Concat", x, self.silu(self.conv(x, 8, 8)), axis=1), 16, 8))
            for x in super().levels()
        ]


def test_quantized_model_is_computed_right_behind_a_concat(tmp_path, monkeypatch):
    """OpenVINO alone is off by a tenth of the output there: it loses the zero point of int8 activations."""
    monkeypatch.setattr(models, "Net", NetWithNeck)
    path = models.yolov5(tmp_path / "float.onnx", batch=1)
    images = np.random.default_rng(0).integers(0, 256, (1, 96, 96, 3), np.uint8)
    ranges = minmax(path, {"images": images.transpose(0, 3, 1, 2).astype(np.float32) / 255})
    quantized = insert_qdq(path, inspect_model(path), ranges=ranges, keep_float=())
    (tmp_path / "quantized.onnx").write_bytes(quantized.model)
    spec = inspect_model(tmp_path / "quantized.onnx")

    outputs = []
    for engine in (OpenVinoEngine(spec, max_batch=1), OnnxRuntimeEngine(spec, max_batch=1)):
        outputs.append(infer(engine, images))
        engine.close()

    assert quantized.mac_share_int8 == 1.0
    assert np.abs(outputs[0] - outputs[1]).mean() < 0.005 * np.abs(outputs[1]).mean()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs have no such instruction")
def test_int8_is_right_on_a_cpu_whose_sums_saturate(tmp_path):
    """OpenVINO held to AVX2, where two products are added in 16 bits, infers what it infers here."""
    path = models.yolov5(tmp_path / "float.onnx", batch=1)
    images = np.random.default_rng(0).integers(0, 256, (1, 96, 96, 3), np.uint8)
    ranges = minmax(path, {"images": images.transpose(0, 3, 1, 2).astype(np.float32) / 255})
    (tmp_path / "quantized.onnx").write_bytes(insert_qdq(path, inspect_model(path), ranges=ranges, keep_float=()).model)
    np.save(tmp_path / "images.npy", images)
    engine = OnnxRuntimeEngine(inspect_model(tmp_path / "quantized.onnx"), max_batch=1)
    expected = infer(engine, images)

    ended = subprocess.run(
        [sys.executable, "-c", ON_AVX2, str(tmp_path)],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ended.stdout == "INT8 sums saturate here (no VNNI)\n", ended.stderr
    assert "int8 is computed in float" in ended.stderr
    difference = np.abs(np.load(tmp_path / "output.npy") - expected)
    assert difference.mean() < 0.0005 * np.abs(expected).mean()


ON_AVX2 = """
import logging, sys
from pathlib import Path
import numpy as np
from edge.engine.openvino.engine import OpenVinoEngine
from edge.engine.openvino.binding import why_int8_in_float
from edge.model.inspect import inspect_model

logging.basicConfig(level="WARNING")
folder = Path(sys.argv[1])
engine = OpenVinoEngine(inspect_model(folder / "quantized.onnx"), max_batch=1)
engine.canvases[0][:] = np.load(folder / "images.npy")
engine.start(0, 1)
np.save(folder / "output.npy", engine.wait(0))
print(why_int8_in_float())
"""


def test_equal_nodes_are_each_given_out(tmp_path):
    net = models.Net(32, batch=1)
    first, last, axis = net.ints(0), net.ints(16), net.ints(2)
    rows = [net.op("Slice", net.image, first, last, axis) for _ in range(2)]
    halves = [
        net.op("Slice", x, net.ints(start), net.ints(start + 16), net.ints(3))
        for x, start in zip(rows, (0, 16), strict=True)
    ]
    net.op("Sigmoid", net.conv(net.op("Concat", *halves, axis=1), 6, 4), name="output0")
    path = net.save(tmp_path / "m.onnx", {"output0": (4, 16, 16)})
    spec = dataclasses.replace(inspect_model(models.yolov8(tmp_path / "any.onnx", size=32, batch=1)), path=path)
    engine = OpenVinoActivations(spec, rows, max_batch=1)
    image = canvases(spec, rows=1)

    found = infer(engine, image)

    for name in rows:
        np.testing.assert_allclose(found[name], image[:, :16].transpose(0, 3, 1, 2) / 255, rtol=1e-6)


def test_one_of_many_engines_is_given_one_thread(tmp_path, monkeypatch):
    monkeypatch.setattr("edge.engine.openvino.kind.OpenVinoEngine", lambda spec, **settings: settings)
    spec = spec_of(models.yolov8, tmp_path)

    threads = [
        KIND.load(b"", spec, dataclasses.replace(request(threads=given), is_one_of_many=is_one))["threads"]
        for given, is_one in ((None, True), (3, True), (3, False), (None, False))
    ]

    assert threads == [1, 1, 3, None]


_COMPILED_LAST = """
import sys
import onnx
from edge.media.gstreamer import binding
binding.load()
from edge.engine.openvino.binding import import_openvino
core = import_openvino().Core()
core.compile_model(core.read_model(sys.argv[1]), "CPU")
"""


def test_an_engine_that_is_made_after_gstreamer_was_loaded_works(tmp_path):
    pytest.importorskip("gi")
    command = [sys.executable, "-c", _COMPILED_LAST, models.yolov8(tmp_path / "model.onnx")]
    done = subprocess.run(command, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


_SIGNALLED_LAST = """
import gc
import signal
import sys
from pathlib import Path
from edge.engine.openvino.engine import OpenVinoEngine
from edge.model.inspect import inspect_model
signal.signal(signal.SIGTERM, lambda number, frame: print("handled", flush=True))
engines = [OpenVinoEngine(inspect_model(Path(sys.argv[1])), max_batch=1) for _ in range(2)]
while engines:
    engines.pop(0).close()
    gc.collect()
    signal.raise_signal(signal.SIGTERM)
"""


def test_a_signal_is_handled_after_engines_that_ended_in_the_order_in_which_they_began(tmp_path):
    command = [sys.executable, "-c", _SIGNALLED_LAST, models.yolov8(tmp_path / "model.onnx")]
    done = subprocess.run(command, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "handled\nhandled\n"), done.stderr


_WHO_IS_TOLD = """
import threading
from edge.engine.openvino.binding import import_openvino
import_openvino().Core()
print(threading.active_count())
"""


def test_nobody_is_told_that_openvino_is_used(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("CI", None)  # it tells nobody there anyway
    watched = ["strace", "-f", "-qq", "-o", tmp_path / "calls", "-e", "trace=connect,fork,vfork,clone"]
    command = [*(watched if shutil.which("strace") else []), sys.executable, "-c", _WHO_IS_TOLD]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)

    assert done.stdout == "1\n"
    assert not (tmp_path / "intel").exists()
    if shutil.which("strace"):
        assert "connect(" not in (tmp_path / "calls").read_text()
