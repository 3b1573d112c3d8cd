"""A model of a variant, written to a file as its exporter would."""

import datetime
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

from tests.support.exports import families
from tests.support.exports.slim import slimmed
from tests.support.exports.torch_like import INPUT, Writer

CLASSES = 3
_LOGITS = r"cv3\.[0-2]/(one2one_)?cv3\.[0-2]\.2/Conv$"
_SPREAD = 1.6
_NAMES = {"v5u": "YOLOv5n", "v8": "YOLOv8n", "v9": "YOLOv9t", "v10": "YOLOv10n", "11": "YOLO11n", "12": "YOLO12n",
          "26": "YOLO26n"}  # fmt: skip


def build(variant, path):
    options = variant.options
    rows = None if options.get("dynamic") else options.get("batch", 1)
    writer = Writer(height=variant.height, width=variant.width, rows=rows, opset=options.get("opset", 18))
    classes = len(variant.labels)
    outputs = families.write(
        writer,
        variant.family,
        classes=classes,
        task=variant.task,
        is_end_to_end=options.get("nms") is False,
        has_nms=options.get("nms") is True,
    )
    shape = (options.get("batch", 1), 3, variant.height, variant.width)
    model = settled(writer.model(outputs, metadata(variant)), _LOGITS, shape)
    if options.get("simplify", True):
        model = slimmed(model)
    if options.get("quantize") == 16:
        model = convert_float_to_float16(model, keep_io_types=True)  # what the exporter calls
    onnx.save(model, path)
    return path


def settled(model, logits, shape, *, scale=1.0, mean=-3.5):
    """Give the logits of each level the spread that a trained head has: most classes are unlikely, some are sure.

    `logits` matches the names of the convolutions that make them; `shape` and `scale` are the input's.
    """
    nodes = [node for node in model.graph.node if re.search(logits, node.name)]
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.extend(onnx.ValueInfoProto(name=node.output[0]) for node in nodes)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(probe.SerializeToString(), options, ["CPUExecutionProvider"])
    blocks = np.random.default_rng(0).random((*shape[:2], shape[2] // 16, shape[3] // 16)) * scale
    picture = blocks.repeat(16, axis=2).repeat(16, axis=3).astype(np.float32)
    found = session.run([node.output[0] for node in nodes], {INPUT: picture}) if nodes else []
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    for node, value in zip(nodes, found, strict=True):
        factor = _SPREAD / value.std()
        for name, offset in zip(node.input[1:], (0.0, mean - value.mean() * factor), strict=True):
            tensor = numpy_helper.to_array(stored[name]) * factor + offset
            stored[name].CopyFrom(numpy_helper.from_array(tensor.astype(np.float32), name))
    return model


def metadata(variant):
    """The texts that Ultralytics leaves in a file."""
    options = {
        "data": None,
        "batch": 1,
        "fraction": 1.0,
        "quantize": None,
        "nms": None,
        "dynamic": False,
        "simplify": True,
        "opset": None,
    }
    arguments = {name: variant.options.get(name, value) for name, value in options.items()}
    return {
        "description": f"Ultralytics {_NAMES[variant.family]} model ",
        "author": "Ultralytics",
        "date": datetime.datetime(2026, 11, 25, tzinfo=datetime.timezone.utc).isoformat(),
        "version": "8.4.190",
        "license": "AGPL-3.0 License (https://ultralytics.com/license)",
        "docs": "https://docs.ultralytics.com",
        "stride": "32",
        "task": variant.task,
        "head": "Detect",
        "batch": str(arguments["batch"]),
        "imgsz": str([variant.height, variant.width]),
        "names": str(dict(enumerate(variant.labels))),
        "args": str(arguments),
        "channels": "3",
        "end2end": str(variant.options.get("nms") is False),
        **({"kpt_shape": "[17, 3]"} if variant.task == "pose" else {}),
    }


FAMILIES = {
    "v5u": "yolov5n",
    "v8": "yolov8n",
    "v9": "yolov9t",
    "v10": "yolov10n",
    "11": "yolo11n",
    "12": "yolo12n",
    "26": "yolo26n",
}
SIZE = 96


@dataclass(frozen=True)
class Variant:
    """One export: `options` as `yolo export` takes them."""

    family: str
    name: str = "default"
    task: str = "detect"
    options: dict[str, Any] = field(default_factory=dict)
    reads_as: str | None = "yolov8"
    said: str = ""

    @property
    def id(self) -> str:
        return "-".join(part for part in (self.family, self.task.replace("detect", ""), self.name) if part)

    @property
    def is_as_exported(self) -> bool:
        """Whether the builder writes what the exporter does; of other tasks of YOLO26 and with NMS only the layout."""
        return self.task == "detect" or (self.family != "26" and "nms" not in self.options)

    @property
    def labels(self) -> tuple[str, ...]:
        return ("0",) if self.task == "pose" else ("0", "1", "2")

    @property
    def description(self) -> str:
        suffix = {"detect": "", "segment": "-seg", "classify": "-cls"}.get(self.task, f"-{self.task}")
        return f"{FAMILIES[self.family]}{suffix}.yaml"

    @property
    def height(self) -> int:
        size = self.options.get("imgsz", SIZE)
        return size if isinstance(size, int) else size[0]

    @property
    def width(self) -> int:
        size = self.options.get("imgsz", SIZE)
        return size if isinstance(size, int) else size[1]


def _of(family, name="default", *, task="detect", reads_as="yolov8", said="", **options):
    return Variant(family=family, name=name, task=task, options=options, reads_as=reads_as, said=said)


def _variants():
    for family in FAMILIES:
        yield _of(family)
        yield _of(family, "dynamic", dynamic=True)
        yield _of(family, "plain", simplify=False)
        yield _of(family, "batch4", batch=4)
        yield _of(family, "rectangular", imgsz=[64, 96])
        yield _of(family, "half", quantize=16)
        yield _of(family, "nms", nms=True, reads_as="yolov10")
        yield _of(family, "dynamic-plain", dynamic=True, simplify=False)
    for family in ("v10", "26"):
        for name, more in (("e2e", {}), ("e2e-dynamic", {"dynamic": True}), ("e2e-plain", {"simplify": False})):
            yield _of(family, name, nms=False, reads_as="yolov10", **more)
    for family, opsets in (("v8", (12, 20)), ("11", range(12, 21)), ("26", (12, 20))):
        for opset in opsets:
            yield _of(family, f"opset{opset}", opset=opset)
    for opset in range(12, 21):
        yield _of("26", f"e2e-opset{opset}", opset=opset, nms=False, reads_as="yolov10")
    for family in ("v8", "11", "12", "26"):
        for task in ("pose", "segment", "obb"):
            yield _of(family, task=task)
        yield _of(family, task="classify", reads_as=None, said='its task is "classify"')
    for task in ("pose", "segment", "obb"):
        yield _of("11", "dynamic", task=task, dynamic=True)
        yield _of("11", "nms", task=task, nms=True, reads_as="yolov10")
        yield _of("26", "e2e", task=task, nms=False, reads_as="yolov10")


VARIANTS = tuple(_variants())

DETECTORS = tuple(one for one in VARIANTS if one.reads_as is not None)
HALF = tuple(one for one in DETECTORS if one.options.get("quantize") == 16)
# Their heads are those of v8 (v10's of 26), and so is all that these options change.
_ALIKE = [f"{family}-{name}" for family in ("v5u", "v9", "v10") for name in ("batch4", "rectangular", "dynamic-plain")]
WHOLE = tuple(one for one in DETECTORS if one not in HALF and one.id not in _ALIKE)
REFUSED = tuple(one for one in VARIANTS if one.reads_as is None and one.is_as_exported)
