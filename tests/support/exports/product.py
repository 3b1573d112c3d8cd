"""The product's own way with a model: inspect, calibrate, table qdq, evaluate; as commands, and what came of them."""

import json

import cv2
import numpy as np

from edge.calibrate.table import read_table
from edge.model.inspect import inspect_model
from tests.support import command_line
from tests.support.exports import answers

IMAGES, LEAST_MAP = 6, 0.99
FLOAT_APART, INT8_APART = 0.005, 0.02  # of 1: the two libraries sum in another order, and these weights are random


def command(*arguments):
    """Run `edge-deploy` in this process; return its exit code, what it printed and what it told."""
    done = command_line.command("edge-deploy", *arguments, expected=None)
    return done.returncode, done.stdout, done.stderr


def draw(spec, folder):
    """Write images of the model's size, and as labels what ONNX Runtime finds on them; return both folders."""
    pictures, labels = folder / "images", folder / "labels"
    pictures.mkdir()
    labels.mkdir()
    canvases = answers.canvases_for(spec, IMAGES)
    output = answers.output_of_onnxruntime(spec, canvases)
    found = answers.detections_by_hand(spec, output, overlap=0.65, is_multi_label=True)
    size = spec.preprocess.size
    for number, (canvas, rows) in enumerate(zip(canvases, found, strict=True)):
        cv2.imwrite(str(pictures / f"{number}.png"), canvas[..., ::-1])
        boxes = rows[:, :4] / ([size.width, size.height] * 2)
        lines = [
            f"{int(label)} {(x1 + x2) / 2:.6f} {(y1 + y2) / 2:.6f} {x2 - x1:.6f} {y2 - y1:.6f}\n"
            for (x1, y1, x2, y2), label in zip(boxes, rows[:, 5], strict=True)
            if x2 - x1 > 0.01 and y2 - y1 > 0.01
        ]
        (labels / f"{number}.txt").write_text("".join(lines))
    return pictures, labels


def faults_of(model, folder, *, method="minmax"):
    """Return what is wrong with the product's answers on an exported detector, one line each."""
    spec = inspect_model(model)
    faults = _float_faults(spec)
    images, labels = draw(spec, folder)
    table, quantized = folder / "t.calib.json", folder / "q.onnx"
    labelled = ("--images", images, "--labels", labels, "--json")
    steps = {
        "inspect": ("inspect", model, "--json"),
        "calibrate": ("calibrate", model, "--images", images, "--method", method, "-o", table),
        "table qdq": ("table", "qdq", table, "--model", model, "-o", quantized),
        "evaluate": ("evaluate", model, *labelled),
        "evaluate in INT8": ("evaluate", model, *labelled, "--table", table),
        "inspect the Q/DQ model": ("inspect", quantized, "--json"),
    }
    told = {}
    for name, arguments in steps.items():
        code, told[name], err = command(*arguments)
        if code:
            return [*faults, f"{name} ends with {code}: {err}"]
    if (found := json.loads(told["evaluate"])["map50_95"]) < LEAST_MAP:
        faults.append(f"mAP {found} of what ONNX Runtime finds")
    return [*faults, *_int8_faults(spec, read_table(table), quantized)]


def _float_faults(spec):
    canvases = answers.canvases_for(spec)
    ours, theirs = answers.output_of_product(spec, canvases), answers.output_of_onnxruntime(spec, canvases)
    faults = []
    if (apart := answers.difference(spec, ours, theirs)) > FLOAT_APART:
        faults.append(f"the outputs lie {apart:.3f} apart")
    found, expected = answers.detections_of_product(spec, ours), answers.detections_by_hand(spec, ours)
    if not any(len(one) for one in expected):
        faults.append("nothing is there to be found")
    for image, (one, other) in enumerate(zip(found, expected, strict=True)):
        if one.shape != other.shape or np.abs(one - other).max(initial=0) > 1e-3:
            faults.append(f"image {image}: {len(one)} detections, {len(other)} expected")
    return faults


def _int8_faults(spec, table, quantized):
    """The engine in INT8 and ONNX Runtime, on the file that `table qdq` wrote, agree but for single levels."""
    canvases = answers.canvases_for(spec)
    ours = answers.output_of_product(spec, canvases, table=table)
    theirs = answers.output_of_onnxruntime(spec, canvases, content=quantized.read_bytes())
    apart = answers.scores_apart(spec, ours, theirs)
    return [f"scores in INT8 lie {apart:.3f} apart"] if apart > INT8_APART else []
