"""A detector of three convolutions, which a search is done with in a second, and labels of what it finds."""

import cv2
import numpy as np

from tests.support import models
from tests.support.models import CHANNELS, STRIDES, Net
from tests.support.onnxruntime_engine import OnnxRuntimeEngine

SIZE = 96
CLASSES = 2


class FewLayers(Net):
    """Three levels of one convolution each: a search takes a second."""

    widest = 1.0  # how much larger one channel of each feature is than the others

    def levels(self):
        x, features = self.image, []
        for channels, stride in zip((3, CHANNELS, CHANNELS), (8, 2, 2), strict=True):
            x = self.silu(self.conv(x, channels, CHANNELS, stride=stride))
            features.append(x)
        return features

    def conv(self, x, into, out, *, kernel=1, stride=1, bias=0.0):
        if stride > 1:
            kernel, weight = stride, self.random.normal(0, 1 / stride, (out, into, stride, stride))
            weight[0] *= self.widest
        else:
            kernel = 1 if self.widest == 1 else 3  # so much work that it cannot stay in float
            weight = self.random.normal(0, 1.5 / np.sqrt(into) / kernel, (out, into, kernel, kernel))
        if x != self.image:
            weight[:, 0] /= self.widest
        return self.op(
            "Conv", x, self.const(weight), self.const(np.broadcast_to(bias, out)),
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2 if stride == 1 else 0] * 4,
        )  # fmt: skip


def few_layers(path, *, widest=1.0):
    net = FewLayers(SIZE, batch=1, seed=2)
    net.widest = widest
    assert [SIZE // stride for stride in STRIDES] == net.sides()
    parts = [models.yolov5_level(net, feature, i, CLASSES) for i, feature in enumerate(net.levels())]
    net.op("Concat", *parts, name="output0", axis=1)
    return net.save(path, {"output0": (3 * net.cells(), 5 + CLASSES)})


def write_labels(folder, spec, images):
    """Label each image with what the float model finds in ONNX Runtime with a score of 0.3 and more."""
    folder.mkdir()
    engine = OnnxRuntimeEngine(spec, max_batch=1)
    for path in images:
        canvas = np.full((SIZE, SIZE, 3), 114, np.uint8)
        canvas[12:84] = cv2.resize(cv2.imread(str(path)), (SIZE, 72))[..., ::-1]
        engine.canvases[0][0] = canvas
        engine.start(0, 1)
        (folder / f"{path.stem}.txt").write_text(
            "".join(dict.fromkeys(_lines(engine.wait(0)[0])))
        )  # cut at an edge, two may be one


def _lines(rows):
    scores = rows[:, 4:5] * rows[:, 5:]
    for row in np.argsort(-scores.max(axis=1))[:6]:
        (x, y, width, height), class_id = rows[row, :4], scores[row].argmax()
        left, right = np.clip([x - width / 2, x + width / 2], 0, SIZE) / SIZE
        top, bottom = (np.clip([y - height / 2, y + height / 2], 12, 84) - 12) / 72
        if right - left > 0.05 and bottom - top > 0.05:
            box = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
            yield f"{class_id} {' '.join(f'{value:.6f}' for value in box)}\n"
