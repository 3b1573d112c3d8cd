"""What a head's numbers mean in its authors' own words, and which boxes stay: by plain loops, one box at a time."""

import math

import numpy as np

from edge.types import HeadFamily

STRIDES = (8, 16, 32)


def candidates(family, output, *, size, classes, threshold, is_multi_label=False, is_turned=False):
    """Yield corners, score and class of the cells of one image; each class of a cell counts where `is_multi_label`."""
    if family is HeadFamily.YOLOV10:
        for row in output[output[:, 4] > threshold]:
            yield (*(around(*row[:4], row[-1]) if is_turned else row[:4]), *row[4:6])
        return
    grid = _cells(size) if family is HeadFamily.YOLOX else None
    for cell, row in enumerate(output.T if family is HeadFamily.YOLOV8 else output):
        scores = row[4 : 4 + classes] if family is HeadFamily.YOLOV8 else row[5 : 5 + classes] * row[4]
        x, y, width, height = row[:4]
        if grid is not None:
            column, line, stride = grid[cell]
            x, y, width, height = (x + column) * stride, (y + line) * stride, *(np.exp([width, height]) * stride)
        for label in range(len(scores)) if is_multi_label else [int(np.argmax(scores))]:
            if scores[label] > threshold:
                yield (*around(x, y, width, height, row[-1] if is_turned else 0.0), scores[label], label)


def around(x, y, width, height, angle):
    """Return the corners of the upright box around one that is turned: the furthest of its four own corners."""
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    own = np.array([[-width, -height], [width, -height], [width, height], [-width, height]]) / 2 @ turn.T + [x, y]
    return (*own.min(axis=0), *own.max(axis=0))


def _cells(size):
    """Column, row and stride of each cell of YOLOX."""
    return [(x, y, s) for s in STRIDES for y in range(size.height // s) for x in range(size.width // s)]


def iou(a, b):
    width, height = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    union = sum((one[2] - one[0]) * (one[3] - one[1]) for one in (a, b)) - width * height
    return width * height / union if union > 0 else 0.0


def kept_by_nms(xyxy, score, group, iou_threshold):
    """Return the indices of those that no better one of their group covers, best first."""
    kept = []
    for index in sorted(range(len(score)), key=lambda i: (-score[i], i)):
        if all(group[index] != group[k] or iou(xyxy[index], xyxy[k]) <= iou_threshold for k in kept):
            kept.append(index)
    return kept
