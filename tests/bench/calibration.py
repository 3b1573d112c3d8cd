"""What calibration costs and gives, each model in one run: observing, whole calibrations, accuracy, speed of INT8.

NNCF is measured beside it where it is installed, ONNX Runtime's calibrators always.
"""

import dataclasses
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from edge.calibrate.findings import facts_of_model
from edge.calibrate.table import read_table
from edge.engine.kind import QdqForm, load_kind
from edge.engine.openvino.engine import OpenVinoActivations
from edge.media.images import read_image
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import quantizable_tensors
from edge.quantize.feed import run_stills, still_canvases
from edge.quantize.forms import Forms
from edge.quantize.new_tables import Observing, tensors_to_look_at
from edge.quantize.subject import find_images
from edge.types import ColourOrder
from tests.bench.measure import engine_ms

METHODS = ("mse", "percentile", "minmax", "entropy", "auto")
ORT_IMAGES = 16  # its histogram calibrators keep every tensor of every image in memory


@dataclasses.dataclass(frozen=True)
class Data:
    """Folders: to calibrate with, and to measure on."""

    images: Path
    labels: Path
    val: Path
    val_labels: Path


def measure_int8(model, data, *, folder, seconds):
    print(f"calibrating {model.name}", file=sys.stderr)
    spec = inspect_model(model)
    tables = {method: _calibrated(model, data, method, folder) for method in METHODS}
    speed, int8 = {"fp32": engine_ms(spec, seconds=seconds)}, dataclasses.replace(spec, is_quantized=True)
    accuracy = {"fp32": _accuracy(model, data, None)}
    for method, (table, _) in tables.items():
        content = Forms(spec, read_table(table)).qdq_model(QdqForm()).model
        speed[method] = engine_ms(int8, seconds=seconds, content=content)
        accuracy[method] = _accuracy(model, data, table)
    rows = [_row("fp32", accuracy, speed, None), *(_row(one, accuracy, speed, tables[one][1]) for one in METHODS)]
    if importlib.util.find_spec("nncf"):
        found = _nncf(model, data)
        rows.append({**dict.fromkeys(rows[0]), "": "NNCF", "mAP50-95": found["map50_95"][0], "s": found["seconds"]})
    spent = _observing(spec, data)
    costs = {
        **{f"{name}, twice, s": seconds for name, seconds in spent.items()},
        "ratio": spent["observe"] / spent["forward"],
        "whole mse, s per image": tables["mse"][1] / len(list(data.images.iterdir())),
        **{f"ORT {name}, s per image": _ort_seconds(spec, data, name) for name in ("MinMax", "Percentile", "Entropy")},
    }
    return {
        f"{model.stem}: INT8 on images that calibration has not seen": rows,
        f"{model.stem}: cost of observing; budget of the ratio: 1.5": [costs],
    }


def _row(name, accuracy, speed, seconds):
    found, exact = accuracy[name], accuracy["fp32"]["map50_95"]
    return {
        "": name,
        "mAP50-95": found["map50_95"],
        "points": 100 * (found["map50_95"] - exact),
        "MACs in INT8": found.get("int8_mac_share"),
        "ms per frame": speed[name],
        "times faster": speed["fp32"] / speed[name],
        "s": seconds,
    }


def _calibrated(model, data, method, folder):
    table = folder / f"{model.stem}.{method}.calib.json"
    options = ("--max-drop", "100", "--labels", data.labels) if method == "auto" else ()
    started = time.perf_counter()
    _deploy("calibrate", model, "--images", data.images, "--method", method, "-o", table, *options)
    elapsed = time.perf_counter() - started
    print(f"  {method}: {elapsed:.1f} s", file=sys.stderr)
    return table, elapsed


def _accuracy(model, data, table):
    options = () if table is None else ("--table", table)
    done = _deploy("evaluate", model, "--images", data.val, "--labels", data.val_labels, "--json", *options)
    return json.loads(done.stdout)


def _observing(spec, data):
    """Return seconds of the forward passes with all tensors given out, and of observing them; twice, in turn."""
    graph, images = load_graph(spec.path), find_images(data.images)[0]
    names, facts = quantizable_tensors(graph), facts_of_model(spec)
    others = [name for name in facts.activations if name not in set(names)]
    peaks = tensors_to_look_at(graph, others, scores=facts.scores)
    spent = {"forward": 0.0, "observe": 0.0}
    engine = OpenVinoActivations(spec, names, largest_of=peaks)
    work = Observing(kind=load_kind("openvino"), forms=Forms(spec), max_batch=1, names=names, peaks_of=peaks)
    for _ in range(2):
        started = time.perf_counter()
        for _ in run_stills([image.path for image in images], engine):
            pass
        between = time.perf_counter()
        list(work.run(engine, images, read=read_image, on_item=lambda: None))
        spent["forward"] += between - started
        spent["observe"] += time.perf_counter() - between
    engine.close()
    return spent


def _pixels(spec, images):
    """Yield the model's input for each image, float32 (1, 3, H, W)."""
    settings = spec.preprocess
    for canvas in still_canvases([image.path for image in images], settings):
        ordered = canvas[..., ::-1] if settings.colour_order is ColourOrder.BGR else canvas
        yield np.ascontiguousarray((ordered.astype(np.float32) * settings.scale).transpose(2, 0, 1)[None])


def _ort_seconds(spec, data, name):
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, create_calibrator

    pixels = _pixels(spec, find_images(data.images)[0][:ORT_IMAGES])

    class Reader(CalibrationDataReader):
        def get_next(self):
            values = next(pixels, None)
            return None if values is None else {spec.input_name: values}

    with tempfile.TemporaryDirectory() as folder:
        method, written = getattr(CalibrationMethod, name), str(Path(folder) / "augmented_model.onnx")
        started = time.perf_counter()
        calibrator = create_calibrator(str(spec.path), calibrate_method=method, augmented_model_path=written)
        calibrator.collect_data(Reader())
        calibrator.compute_data()
        return (time.perf_counter() - started) / ORT_IMAGES


def _nncf(model, data):
    command = [sys.executable, "-m", "tests.bench.nncf_ptq", model, data.images, data.val, data.val_labels]
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _deploy(*arguments):
    command = [sys.executable, "-m", "edge.cli.edge_deploy", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True)
