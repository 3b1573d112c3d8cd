"""What the product finds by an exported model, held against ONNX Runtime and a decode that is written out here."""

import numpy as np
import onnxruntime

from edge.engine.kind import EngineRequest, build_and_load
from edge.engine.openvino.kind import KIND
from edge.quantize.forms import Forms
from edge.types import ColourOrder, HeadFamily, Precision
from edge.vision.heads import Detector, head_of
from edge.vision.letterbox import fit

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
    engine.canvases[0][: len(canvases)] = canvases
    engine.start(0, len(canvases))
    output = engine.wait(0).copy()
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
    found = [_kept(spec, list(_candidates(spec, one, is_multi_label)), overlap) for one in output]
    rows = [np.array(one, np.float64).reshape(-1, 6) for one in found]
    return [np.column_stack([np.clip(one[:, :4], 0, limits), one[:, 4:]]) for one in rows]


def _candidates(spec, output, is_multi_label):
    """Yield corners, score and class of one image's cells, by what its family means in its authors' own words."""
    if spec.family is HeadFamily.YOLOV10:
        for row in output[output[:, 4] > THRESHOLD]:
            yield (*(_around(*row[:4], row[-1]) if spec.task == "obb" else row[:4]), *row[4:6])
        return
    grid = _yolox_grid(spec) if spec.family is HeadFamily.YOLOX else None
    for cell, row in enumerate(output.T if spec.family is HeadFamily.YOLOV8 else output):
        count = len(spec.labels)
        scores = row[4 : 4 + count] if spec.family is HeadFamily.YOLOV8 else row[5 : 5 + count] * row[4]
        x, y, width, height = row[:4]
        if grid is not None:
            column, line, stride = grid[cell]
            x, y, width, height = (x + column) * stride, (y + line) * stride, *(np.exp([width, height]) * stride)
        for label in range(len(scores)) if is_multi_label else [int(np.argmax(scores))]:
            if scores[label] > THRESHOLD:
                yield (*_around(x, y, width, height, row[-1] if spec.task == "obb" else 0.0), scores[label], label)


def _around(x, y, width, height, angle):
    """Return the corners of the upright box around one that is turned: the furthest of its four own corners."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    own = np.array([[-width, -height], [width, -height], [width, height], [-width, height]]) / 2 @ turn.T + [x, y]
    return (*own.min(axis=0), *own.max(axis=0))


def _yolox_grid(spec):
    size = spec.preprocess.size
    return [(x, y, s) for s in (8, 16, 32) for y in range(size.height // s) for x in range(size.width // s)]


def _kept(spec, found, limit):
    """Return those that no better one of their class covers, best first."""
    chosen = []
    for one in sorted(found, key=lambda one: -one[4]):
        rivals = [] if spec.family is HeadFamily.YOLOV10 else [other for other in chosen if other[5] == one[5]]
        if all(_overlap(one, other) <= limit for other in rivals):
            chosen.append(one)
    return chosen


def _overlap(a, b):
    width, height = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    area = sum((one[2] - one[0]) * (one[3] - one[1]) for one in (a, b))
    return width * height / max(area - width * height, 1e-12)
