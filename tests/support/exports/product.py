"""The product's own way with a model: inspect, calibrate, table qdq, evaluate; as commands, and what came of them.

It is held against ONNX Runtime and a decode that is written out here.
"""

import json

import cv2
import numpy as np
import onnxruntime

from edge.calibrate.table import read_table
from edge.engine.kind import EngineRequest, build_and_load
from edge.engine.openvino.kind import KIND
from edge.model.inspect import inspect_model
from edge.quantize.forms import Forms
from edge.types import ColourOrder, HeadFamily, Precision
from edge.vision.boxes import fit
from edge.vision.heads import Detector, head_of
from tests.support import command_line
from tests.support.slow_detections import candidates, kept_by_nms
from tests.support.values import infer

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
    canvases = canvases_for(spec, IMAGES)
    output = output_of_onnxruntime(spec, canvases)
    found = detections_by_hand(spec, output, overlap=0.65, is_multi_label=True)
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
    canvases = canvases_for(spec)
    ours, theirs = output_of_product(spec, canvases), output_of_onnxruntime(spec, canvases)
    faults = []
    if (apart := difference(spec, ours, theirs)) > FLOAT_APART:
        faults.append(f"the outputs lie {apart:.3f} apart")
    found, expected = detections_of_product(spec, ours), detections_by_hand(spec, ours)
    if not any(len(one) for one in expected):
        faults.append("nothing is there to be found")
    for image, (one, other) in enumerate(zip(found, expected, strict=True)):
        if one.shape != other.shape or np.abs(one - other).max(initial=0) > 1e-3:
            faults.append(f"image {image}: {len(one)} detections, {len(other)} expected")
    return faults


def _int8_faults(spec, table, quantized):
    """The engine in INT8 and ONNX Runtime, on the file that `table qdq` wrote, agree but for single levels."""
    canvases = canvases_for(spec)
    ours = output_of_product(spec, canvases, table=table)
    theirs = output_of_onnxruntime(spec, canvases, content=quantized.read_bytes())
    apart = scores_apart(spec, ours, theirs)
    return [f"scores in INT8 lie {apart:.3f} apart"] if apart > INT8_APART else []


THRESHOLD, OVERLAP, MOST = 0.25, 0.5, 10_000


def canvases_for(spec, count=3):
    """Blocks of colour on the model's whole canvas, RGB."""
    size, random = spec.preprocess.size, np.random.default_rng(5)
    blocks = random.integers(0, 256, (count, size.height // 16, size.width // 16, 3), np.uint8)
    return blocks.repeat(16, axis=1).repeat(16, axis=2)


def output_of_product(spec, canvases, *, table=None):
    """Return the raw output of our engine: in float, or in INT8 by a table."""
    precision = Precision.FP32 if table is None else Precision.INT8
    request = EngineRequest(precision=precision, max_batch=len(canvases), options=KIND.options_type())
    engine = build_and_load(KIND, Forms(spec, table), request)
    output = infer(engine, canvases).copy()
    engine.close()
    return output


def output_of_onnxruntime(spec, canvases, *, content=None):
    """Return what another library makes of the same pixels, of the file or of a Q/DQ model made from it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content or spec.path.read_bytes(), options, ["CPUExecutionProvider"])
    pixels = canvases[..., ::-1] if spec.preprocess.colour_order is ColourOrder.BGR else canvases
    planes = (pixels.astype(np.float64) * spec.preprocess.scale).transpose(0, 3, 1, 2).astype(np.float32)
    rows = spec.batch or len(planes)
    padded = np.concatenate([planes, np.zeros((-len(planes) % rows, *planes.shape[1:]), np.float32)])
    (name,) = (one.name for one in session.get_inputs())
    parts = [session.run([spec.output_name], {name: padded[i : i + rows]})[0] for i in range(0, len(padded), rows)]
    return np.concatenate(parts)[: len(planes)]


def difference(spec, ours, theirs):
    """Return how far two raw outputs lie apart: of pixels in sides of the canvas, of scores as they are."""
    side = max(spec.preprocess.size.width, spec.preprocess.size.height)
    if spec.family is HeadFamily.YOLOV10:
        return max(_unmatched(one, other, side) for one, other in zip(ours, theirs, strict=True))
    (box, scores), (box_2, scores_2) = (_box_and_scores(spec, one) for one in (ours, theirs))
    scale = 1.0 if spec.family is HeadFamily.YOLOX else side
    return max(float(np.abs(box - box_2).max()) / scale, float(np.abs(scores - scores_2).max()))


def _box_and_scores(spec, output):
    """What is behind the scores is nobody's here."""
    axis, last = (1, 4) if spec.family is HeadFamily.YOLOV8 else (2, 5)
    return np.split(output, [4, last + len(spec.labels)], axis=axis)[:2]


def _unmatched(ours, theirs, side):
    """Return the largest distance of a row to the nearest one: rows of equal scores may stand in another order.

    The last of them may be others: more may have the score of the last than there are places.
    """
    ours, theirs = ours[:, :6], theirs[:, :6]
    sure = theirs[theirs[:, 4] > theirs[:, 4].min() + 0.01]
    scale = np.array([side] * 4 + [1, 1])
    nearest = np.abs((sure[:, None] - ours[None]) / scale).max(axis=2).min(axis=1)
    return float(nearest.max(initial=0.0))


def scores_apart(spec, ours, theirs):
    """Return how far most scores lie apart; in INT8 a sum close to the middle of two levels falls to either side."""
    if spec.family is HeadFamily.YOLOV10:
        return float(np.median(np.abs(ours[..., 4] - theirs[..., 4])))
    first, second = (_box_and_scores(spec, one)[1] for one in (ours, theirs))
    return float(np.median(np.abs(first - second)))


def detections_of_product(spec, output):
    """Return (N, 6) for each image: corners, score, class, best first."""
    detector = Detector(head=head_of(spec), score_threshold=THRESHOLD, iou_threshold=OVERLAP, max_detections=MOST)
    found = detector.detect(output, [fit(spec.preprocess.size, spec.preprocess)] * len(output))
    return [np.column_stack([one.xyxy, one.score, one.class_id]) for one in found]


def detections_by_hand(spec, output, *, overlap=OVERLAP, is_multi_label=False):
    """The same, by plain loops; each class of a cell counts where `is_multi_label`, as COCO's protocol has it."""
    size = spec.preprocess.size
    limits = [size.width, size.height] * 2
    rows = [np.array(_found(spec, one, overlap, is_multi_label), np.float64).reshape(-1, 6) for one in output]
    return [np.column_stack([np.clip(one[:, :4], 0, limits), one[:, 4:]]) for one in rows]


def _found(spec, output, overlap, is_multi_label):
    """Return corners, score and class of one image, best first; those of YOLOv10 are chosen already."""
    words = {"size": spec.preprocess.size, "classes": len(spec.labels), "threshold": THRESHOLD}
    words |= {"is_multi_label": is_multi_label, "is_turned": spec.task == "obb"}
    found = list(candidates(spec.family, output, **words))
    group = range(len(found)) if spec.family is HeadFamily.YOLOV10 else [one[5] for one in found]
    boxes, scores = [one[:4] for one in found], [one[4] for one in found]
    return [found[i] for i in kept_by_nms(boxes, scores, group, overlap)]
