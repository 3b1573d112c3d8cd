"""The heads of Ultralytics' detectors: distances to cells, one logit for each class, and what makes boxes of them."""

import numpy as np

from tests.support.exports.torch_like import OUTPUT, Map

STRIDES = (8, 16, 32)
_POINTS = 17
_ROWS = {"detect": 0, "pose": 3 * _POINTS, "segment": 32, "obb": 1}
MOST = 300


def detect(w, levels, classes, *, bins=16, is_light=False, is_end_to_end=False, has_nms=False, task="detect"):
    """Boxes and scores in one output, and what a task has beside them; `bins` is 1 in YOLO26.

    Return the shapes of the outputs behind the batch.
    """
    prefix = "one2one_" if is_end_to_end else ""
    wide, narrow = max(16, levels[0].channels // 4, 4 * bins), max(levels[0].channels, classes)
    batch = w.batch_of(levels[0].name)
    boxes = [_box(w, level, f"{prefix}cv2.{i}", wide, 4 * bins) for i, level in enumerate(levels)]
    distances = _joined(w, boxes, batch)
    score = _light_score if is_light else _score
    logits = _joined(w, [score(w, level, f"{prefix}cv3.{i}", narrow, classes) for i, level in enumerate(levels)], batch)
    raw = None if task == "detect" else _joined(w, _beside(w, levels, _ROWS[task]), batch, axis=2)
    masks = {"output1": _masks(w, levels[0])} if task == "segment" else {}
    angle = _angle(w, raw) if task == "obb" else None
    anchors, strides = _cells(w, levels) if w.is_open else (None, None)
    if bins > 1:
        distances = _expected(w, distances, bins, cells=sum(one.height * one.width for one in levels))
    anchors = w.unsqueeze(anchors, 0) if w.is_open else anchors
    cells = sum(one.height * one.width for one in levels)
    if task == "obb":
        boxes = _turned(w, distances, angle, anchors or w.number(_fixed_cells(levels)))
    else:
        corners = _corners(w, distances, anchors or _fixed_cells(levels))
        if not (is_end_to_end or has_nms):
            first, second = corners
            centre = w.op("Div", w.op("Add", first, second), w.number(2.0))
            corners = centre, w.op("Sub", second, first)
        boxes = w.op("Concat", *corners, axis=1)
    scaled = w.op("Mul", boxes, strides or w.number(_fixed_strides(levels)))
    scores = w.op("Sigmoid", logits)
    more = {
        "pose": lambda: _points(w, raw, batch, anchors, levels, strides),
        "segment": lambda: raw,
        "obb": lambda: angle,
    }
    parts = [scaled, scores] if task == "detect" else [scaled, scores, more[task]()]
    if has_nms:
        with w.outside():
            return {OUTPUT: suppressed(w, w.op("Concat", *parts, axis=1), classes, beside=_ROWS[task]), **masks}
    if is_end_to_end:
        return {OUTPUT: _best(w, w.op("Concat", *parts, axis=1), classes, cells, beside=_ROWS[task]), **masks}
    w.op("Concat", *parts, axis=1, name=OUTPUT)
    return {OUTPUT: (4 + classes + _ROWS[task], cells), **masks}


def _box(w, x, scope, wide, rows):
    with w.within(scope):
        y = w.conv(w.conv(x, wide, 3, scope=f"{scope}.0"), wide, 3, scope=f"{scope}.1")
        with w.within(f"{scope}.2"):
            return w.convolve(y, rows, gain=0.05 if rows == 4 else 0.5, start=2.0)  # sides that are positive


def _score(w, x, scope, wide, classes):
    with w.within(scope):
        y = w.conv(w.conv(x, wide, 3, scope=f"{scope}.0"), wide, 3, scope=f"{scope}.1")
        with w.within(f"{scope}.2"):
            return w.convolve(y, classes)


def _light_score(w, x, scope, wide, classes):
    """Depthwise and pointwise in turn, since YOLOv10."""
    with w.within(scope):
        for number in range(2):
            with w.within(f"{scope}.{number}"):
                x = w.conv(x, x.channels, 3, group=x.channels, scope=f"{scope}.{number}.0")
                x = w.conv(x, wide, scope=f"{scope}.{number}.1")
        with w.within(f"{scope}.2"):
            return w.convolve(x, classes)


def _joined(w, maps, batch, *, axis=-1):
    flat = [w.shaped(one.name, batch, one.channels, -1) for one in maps]
    return w.op("Concat", *flat, axis=axis)


def _beside(w, levels, rows):
    """What a task reads beside boxes and classes."""
    wide = max(levels[0].channels // 4, rows)
    return [_box(w, level, f"cv4.{i}", wide, rows) for i, level in enumerate(levels)]


def _masks(w, x):
    """Prototypes of masks, at twice the size."""
    with w.within("proto"):
        y = w.conv(x, 8, 3, scope="cv1")
        with w.within("upsample"):
            weight = w.store("proto.upsample.weight", w.random.normal(0, 0.3, (8, 8, 2, 2)))
            bias = w.store("proto.upsample.bias", np.zeros(8))
            made = w.op(
                "ConvTranspose", y.name, weight, bias, dilations=[1, 1], group=1, kernel_shape=[2, 2], pads=[0] * 4,
                strides=[2, 2],
            )  # fmt: skip
        y = w.conv(Map(made, 8, 2 * x.height, 2 * x.width), 8, 3, scope="cv2")
        y = w.conv(y, 32, scope="cv3")
    w.nodes[-1].output[0] = "output1"
    return (32, y.height, y.width)


def _points(w, raw, batch, anchors, levels, strides):
    """Keypoints: twice the offset and the corner of the cell, times stride; and how sure each is."""
    grid = w.shaped(raw, batch, _POINTS, 3, -1)
    axis, one = w.const([2]), w.const([1])
    place = w.op("Slice", grid, w.const([0]), w.const([2]), axis, one)
    half = w.number(0.5)
    corner = w.op("Sub", anchors, half) if anchors else w.number(_fixed_cells(levels)[0] - 0.5)
    place = w.op("Add", w.op("Mul", place, w.number(2.0)), corner)
    place = w.op("Mul", place, strides or w.number(_fixed_strides(levels)))
    sure = w.op("Sigmoid", w.op("Slice", grid, w.const([2]), w.const([3]), axis, one))
    return w.shaped(w.op("Concat", place, sure, axis=2), batch, 3 * _POINTS, -1)


def _angle(w, raw):
    return w.op("Mul", w.op("Sub", w.op("Sigmoid", raw), w.number(0.25)), w.number(np.pi))


def _turned(w, distances, angle, anchors):
    """Centre and size of a box that is turned by an angle."""
    near, far = w.split(distances, 2, 2, axis=1)
    cosine, sine = w.op("Cos", angle), w.op("Sin", angle)
    x, y = w.split(w.op("Div", w.op("Sub", far, near), w.number(2.0)), 1, 1, axis=1)
    across = w.op("Sub", w.op("Mul", x, cosine), w.op("Mul", y, sine))
    down = w.op("Add", w.op("Mul", x, sine), w.op("Mul", y, cosine))
    centre = w.op("Add", w.op("Concat", across, down, axis=1), anchors)
    return w.op("Concat", centre, w.op("Add", near, far), axis=1)


def _expected(w, x, bins, *, cells):
    """The mean of each side's distribution over distances."""
    with w.within("dfl"):
        batch, count = w.sizes_of(x, 0, 2) if w.is_open else (w.rows, cells)
        y = w.shaped(x, batch, 4, bins, count)
        if w.opset < 13:  # its Softmax takes all axes behind one together: the bins go to the end for it
            y = w.op("Softmax", w.op("Transpose", y, perm=[0, 3, 1, 2]), axis=3)
            y = w.op("Transpose", y, perm=[0, 3, 2, 1])
        else:
            y = w.op("Softmax", w.op("Transpose", y, perm=[0, 2, 1, 3]), axis=1)
        with w.within("conv"):
            weight = w.store("model.dfl.conv.weight", np.arange(bins, dtype=np.float32).reshape(1, bins, 1, 1))
            y = w.op(
                "Conv", y, weight, dilations=[1, 1], group=1, kernel_shape=[1, 1], pads=[0] * 4, strides=[1, 1]
            )  # fmt: skip
        return w.shaped(y, batch, 4, count)


def _corners(w, distances, anchors):
    """Two corners: what lies left and above of the middle of each cell, and right and below."""
    near, far = w.chunk(distances)
    first, second = (anchors, anchors) if isinstance(anchors, str) else (w.number(anchors), w.number(anchors))
    return w.op("Sub", first, near), w.op("Add", second, far)


def _fixed_cells(levels):
    grids = [np.stack(np.meshgrid(np.arange(one.width), np.arange(one.height))) + 0.5 for one in levels]
    return np.concatenate([grid.reshape(2, -1) for grid in grids], axis=1)[None]


def _fixed_strides(levels):
    each = [np.full(one.height * one.width, stride) for one, stride in zip(levels, STRIDES, strict=True)]
    return np.concatenate(each)[None]


def _cells(w, levels):
    """Centres and strides of the cells, worked out anew from the sizes of each map."""
    points, strides = [], []
    for level, stride in zip(levels, STRIDES, strict=True):
        height, width = w.sizes_of(level.name, 2, 3)
        x = _half_steps(w, width)
        y = _half_steps(w, height)
        y, x = w.reshape(y, w.const([-1])), w.reshape(x, w.const([-1]))
        rows, columns = w.op("Shape", y), w.op("Shape", x)
        whole = w.op("Concat", rows, columns, axis=0)
        y = w.op("Expand", w.reshape(y, w.op("Concat", rows, w.const([1]), axis=0)), whole)
        x = w.op("Expand", w.reshape(x, w.op("Concat", w.const([1]), columns, axis=0)), whole)
        pair = w.op("Concat", w.unsqueeze(x, -1), w.unsqueeze(y, -1), axis=-1)
        points.append(w.reshape(pair, w.const([-1, 2])))
        count = w.unsqueeze(w.op("Mul", height, width), 0, is_aside=True)
        value = w.tensor([float(stride)])
        strides.append(w.op("ConstantOfShape", w.op("Concat", count, w.const([1]), axis=0), value=value))
    points, strides = w.op("Concat", *points, axis=0), w.op("Concat", *strides, axis=0)
    return w.op("Transpose", points, perm=[1, 0]), w.op("Transpose", strides, perm=[1, 0])


def _half_steps(w, size):
    steps = w.op("Range", w.const(0), w.op("Cast", size, to=7), w.const(1))
    return w.op("Add", w.op("Cast", steps, to=1), w.number(0.5))


def _best(w, both, classes, cells, *, beside=0):
    """End to end: the best cells, then the best of their scores."""
    count = min(MOST, cells)
    rows = w.op("Transpose", both, perm=[0, 2, 1])
    boxes, scores, *others = w.split(rows, 4, classes, *([beside] if beside else []), axis=-1)
    best = w.largest(scores)
    cell = w.ops("TopK", best, w.const([count]), count=2, axis=1, largest=1, sorted=1)[1]
    scores = w.op("GatherElements", scores, w.expanded(w.unsqueeze(cell, 2), -1, -1, classes), axis=1)
    flat = w.op("Flatten", scores, axis=1)
    values, index = w.ops("TopK", flat, w.const([count]), count=2, axis=1, largest=1, sorted=1)
    values = w.unsqueeze(values, 2)
    label = w.op("Cast", w.unsqueeze(w.op("Mod", index, w.const(classes), fmod=0), 2), to=1)
    row = w.op("GatherElements", cell, w.divided(index, classes), axis=1)
    place = w.unsqueeze(row, 2)
    boxes = w.op("GatherElements", boxes, w.expanded(place, -1, -1, 4), axis=1)
    others = [w.op("GatherElements", one, w.expanded(place, -1, -1, beside), axis=1) for one in others]
    w.op("Concat", boxes, values, label, *others, axis=-1, name=OUTPUT)
    return count, 6 + beside


def classify(w, x, classes):
    """The mean of each of many channels, and one matrix."""
    x = w.conv(x, 64, scope="conv")
    with w.within("pool"):
        pooled = w.op("GlobalAveragePool", x.name)
    flat = w.op("Flatten", pooled, axis=1)
    with w.within("linear"):
        weight = w.store("linear.weight", w.random.normal(0, 0.3, (classes, 64)))
        logits = w.op("Gemm", flat, weight, w.store("linear.bias", np.zeros(classes)), alpha=1.0, beta=1.0, transB=1)
    w.op("Softmax", logits, axis=1, name=OUTPUT)
    return {OUTPUT: (classes,)}


def suppressed(w, both, classes, *, beside=0):
    """What `nms=True` puts behind boxes (x1 y1 x2 y2) and scores of one image: rows of zeros follow the detections."""
    rows = w.op("Transpose", both, perm=[0, 2, 1])
    zero, last = w.const([0]), w.const([2])
    boxes = w.op("Slice", rows, zero, w.const([4]), last)
    scores = w.op("Slice", rows, w.const([4]), w.const([4 + classes]), last)
    best = w.largest(scores)
    label = w.op("ArgMax", scores, axis=-1, keepdims=0)
    first = w.const(0)
    others = [w.op("Slice", rows, w.const([4 + classes]), w.const([4 + classes + beside]), last)] if beside else []
    boxes, label, best, *others = (w.op("Gather", one, first, axis=0) for one in (boxes, label, best, *others))
    chosen = w.op("Transpose", w.op("NonZero", w.op("Greater", best, w.number(0.25))), perm=[1, 0])
    boxes, best, label, *others = (w.op("GatherND", one, chosen) for one in (boxes, best, label, *others))
    order = _by_overlap(w, boxes, best, label, classes)
    boxes, best, label, *others = (w.op("Gather", one, order, axis=0) for one in (boxes, best, label, *others))
    column = w.const([-1, 1])
    label = w.op("Cast", w.reshape(label, column), to=1)
    found = w.op("Concat", boxes, w.reshape(best, column), label, *others, axis=-1)
    _filled_up(w, found, 6 + beside)
    return MOST, 6 + beside


def _by_overlap(w, boxes, best, label, classes):
    """Return which stay: boxes of different classes are moved apart first."""
    zero, one = w.const([0]), w.const([1])
    part = w.number(1 / classes)
    moved = w.op("Mul", w.op("Div", boxes, w.number(float(max(w.height, w.width)))), part)
    count = w.unsqueeze(w.op("Gather", w.op("Shape", label), w.const(0), axis=0), 0)
    scores = w.op("Unsqueeze", best, w.const([1, 0]))
    column = w.reshape(label, w.const([-1, 1]))
    sides = w.op("Slice", moved, zero, w.const([4]), one, one)
    wide = w.op("Concat", count, w.const([4]), axis=0)
    never, ones = w.const([False, False], np.bool_), w.const([1, 1])
    offsets = w.op("Cast", w.op("Expand", column, w.op("Where", never, ones, wide)), to=1)
    apart = w.op("Add", sides, w.op("Mul", offsets, part))
    kept = w.op("NonMaxSuppression", w.unsqueeze(apart, 0), scores, w.const([2**63 - 1]), w.number([0.7]))
    third = w.op("Squeeze", w.op("Gather", kept, w.const([2]), axis=1), one)
    return w.op("Slice", third, zero, w.const([MOST]), zero, one)


def _filled_up(w, found, columns):
    """Pad what was found to the most that there may be."""
    zero, end = w.const([0]), w.const([-1])
    rows = w.op("Gather", w.op("Shape", found), w.const(0), axis=0)
    flat = w.reshape(found, end)
    lacking = w.op("Mul", w.op("Sub", w.const(MOST), rows), w.const(columns))
    pads = w.op("Concat", zero, w.unsqueeze(lacking, 0), axis=0)
    pairs = w.reshape(pads, w.const([-1, 2]))
    turned = w.op("Slice", pairs, end, w.const([-(2**63) + 1]), zero, end)
    padded = w.op("Pad", flat, w.reshape(turned, end), "", mode="constant")
    whole = w.reshape(padded, w.const([1, MOST, columns]))
    w.op("ScatterND", w.number(np.zeros((1, MOST, columns))), w.const([[0]]), whole, name=OUTPUT)
