"""Every family and variant of export that has a row, and what the product is to say of it.

`reads_as` is the family of the head; None: it is refused. `families` names them by the exporter's own descriptions.
"""

from dataclasses import dataclass, field
from typing import Any

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
