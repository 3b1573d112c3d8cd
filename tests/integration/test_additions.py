"""docs/extending.md lists the files of an addition: a tiny one works with them, and fails without any of them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.rtsp import require_gstreamer

ROOT = Path(__file__).parents[2]
_ENGINE = ROOT / "tests/support/engines/onnxruntime"

Edits = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Addition:
    """One of what docs/extending.md tells how to add.

    Attributes:
        heading: of its section there.
        files: what each file becomes: a new text, or pairs of what stands there and what takes its place.
        program: fails where anything is missing.
    """

    heading: str
    files: Mapping[str, str | Edits]
    program: str


def put_into(copy: Path, addition: Addition, *, without: str | None = None) -> None:
    """Make a copy of the package in `copy`, with an addition; without one of its files."""
    shutil.copytree(
        ROOT / "edge", copy / "edge", copy_function=_link_or_copy, ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, change in addition.files.items():
        if name == without:
            continue
        path = copy / name.replace("pipelines/", "edge/pipelines/")
        text = change if isinstance(change, str) else _edited(path.read_text(encoding="utf-8"), change)
        path.unlink(missing_ok=True)  # it is a link to the file of the checkout
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # /tmp may be another file system
        shutil.copy2(source, target)


def _edited(text: str, edits: Edits) -> str:
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} stands there {text.count(old)} times"
        text = text.replace(old, new)
    return text


_WITH_PIPELINE = """
from pathlib import Path
from edge.config.pipeline import load_pipeline

def pipeline(model="", engine="kind: auto", uri="test://"):
    streams = f"streams: [{{id: a, uri: '{uri}'}}]"
    lines = ("version: 1", f"model: {{onnx: m.onnx{model}}}", f"engine: {{{engine}}}", streams)
    Path("p.yaml").write_text("\\n".join((*lines, "publish: {jsonl: o.jsonl}")))
    return load_pipeline(Path("p.yaml"))
"""

_CAMERA = Addition(
    heading="Adding a camera kind",
    files={
        "edge/media/address.py": (
            ('"csi", "test")', '"csi", "test", "snow")'),
            ('"test": (*_NUMBERS, "pattern")', '"test": (*_NUMBERS, "pattern"), "snow": _NUMBERS'),
        ),
        "edge/config/pipeline.py": (('"csi", "test")', '"csi", "test", "snow")'),),
        "edge/media/gstreamer/build.py": (
            (
                '            case "test":\n',
                '            case "snow":\n'
                '                self._add_static("snow", "video/x-raw", format="I420")\n'
                '            case "test":\n',
            ),
        ),
        "pipelines/launch/sources.launch": (
            (
                "[test]\n",
                "[snow]\nvideotestsrc name=source pattern=snow is-live=true ! capsfilter name=mode\n\n[test]\n",
            ),
        ),
    },
    program=_WITH_PIPELINE
    + """
from edge.media.select import make_source
from edge.types import ImageSize, Preprocess

Path("m.onnx").touch()
stream = pipeline(uri="snow://?width=64&height=48&fps=30").config.streams[0]
source = make_source(stream, preprocess=Preprocess(size=ImageSize(width=64, height=64)), base_dir=Path())
source.open()
frame = next(found for found in (source.read(1.0) for _ in range(60)) if found is not None)
assert str(frame.header.source_size) == "64x48", frame.header
assert frame.image.std() > 30, "there is no snow"
source.close()
""",
)

_MESSAGE = Addition(
    heading="Adding a message",
    files={
        "edge/publish/messages.py": (
            (
                "MESSAGE_TYPES: dict[str, type[WireMessage]] = {\n",
                "class MoodMessage(WireMessage, frozen=True, kw_only=True):\n"
                '    """How it goes."""\n\n'
                '    where: ClassVar[str] = "mood"\n'
                '    schema: Literal["edge.mood/1"] = "edge.mood/1"\n'
                "    mood: str\n\n\n"
                "MESSAGE_TYPES: dict[str, type[WireMessage]] = {\n"
                '    "edge.mood/1": MoodMessage,\n',
            ),
        ),
        "edge/deploy/listen.py": (
            ("    InfoMessage,\n", "    InfoMessage,\n    MoodMessage,\n"),
            (
                "        case DeployMessage():\n",
                "        case MoodMessage():\n"
                '            return f"{message.device} is {message.mood}"\n'
                "        case DeployMessage():\n",
            ),
        ),
        "edge/client/client.py": (
            ("    InfoMessage,\n", "    InfoMessage,\n    MoodMessage,\n"),
            ("| DeployMessage\n", "| DeployMessage | MoodMessage\n"),
        ),
        "edge/client/__init__.py": (
            ("    InfoMessage,\n", "    InfoMessage,\n    MoodMessage,\n"),
            ('    "Missing",\n', '    "Missing",\n    "MoodMessage",\n'),
        ),
    },
    program="""
from typing import get_args
from paho.mqtt import publish
from edge.client import Client, Item, MoodMessage
from edge.demo.broker import embedded_broker
from edge.deploy.listen import line_from_message
from tools.message_schemas import documents

said = MoodMessage(device="gate-01", mood="well")
texts = documents()
assert "schema/edge.mood-1.json" in texts and "edge/v1/{site}/{device}/mood" in texts["asyncapi.yaml"]
assert line_from_message(said) == "gate-01 is well"
assert MoodMessage in get_args(Item)
with embedded_broker() as broker:
    with Client(broker.host, port=broker.port, site="demo", tls=False, protocol="v3.1.1") as client:
        publish.single(f"edge/v1/demo/gate-01/{said.topic}", said.encode(), hostname=broker.host, port=broker.port)
        items = (item for _, item in zip(range(50), client.receive()))
        assert next(item for item in items if item is not None) == said
""",
)

_FAMILY = Addition(
    heading="Adding a head family",
    files={
        "edge/types.py": (
            (
                '    YOLOX = "yolox"',
                '    CORNERS = "corners"  # (B, A, 5+K): xyxy in pixels, objectness, scores\n    YOLOX = "yolox"',
            ),
        ),
        "edge/model/families.py": (
            (
                '    HeadFamily.YOLOX: "YOLOX raw',
                '    HeadFamily.CORNERS: "corners (B, A, 5+K)",\n    HeadFamily.YOLOX: "YOLOX raw',
            ),
            (
                "_Propose = Callable",
                "def _prove_corners(output: Output, match: Match) -> tuple[str, ...]:\n"
                '    return ("somebody says so",)\n\n\n'
                "_Propose = Callable",
            ),
            (
                "    HeadFamily.YOLOX: (_propose",
                "    HeadFamily.CORNERS: (_propose_yolov5, _prove_corners),\n    HeadFamily.YOLOX: (_propose",
            ),
        ),
        "edge/vision/heads.py": (
            (
                "def _with_objectness(",
                "def _decode_corners(found: CandidateRows, head: Head, score_threshold: float) -> Candidates:\n"
                "    index, score, class_id = _with_objectness(found.values, head, score_threshold)\n"
                "    row, cell, xyxy = found.row[index], found.cell[index], found.values[index, :4]\n"
                "    return Candidates(row=row, cell=cell, xyxy=xyxy, score=score, class_id=class_id)\n\n\n"
                "def _with_objectness(",
            ),
            (
                "    HeadFamily.YOLOX: _decode",
                "    HeadFamily.CORNERS: _decode_corners,\n    HeadFamily.YOLOX: _decode",
            ),
        ),
        "edge/engine/tensorrt/tensors.py": (
            (
                "    HeadFamily.YOLOX: Cell",
                "    HeadFamily.CORNERS: CellLayout.OBJECTNESS,\n    HeadFamily.YOLOX: Cell",
            ),
        ),
        "edge/config/schema.py": (('"yolov10", "yolox"]', '"yolov10", "yolox", "corners"]'),),
    },
    program=_WITH_PIPELINE
    + """
import numpy as np
from edge.engine.section import read_model
from edge.engine.tensorrt.tensors import Tensor, _cells
from edge.vision.heads import Detector
from edge.vision.heads import Head
from edge.vision.boxes import fit
from tests.support.models import yolov5

yolov5(Path("m.onnx"))
spec = read_model(pipeline(model=", family: corners"))
assert spec.family.value == "corners"
output = np.zeros((1, 7, 5 + len(spec.labels)), np.float32)
output[0, 3] = (10, 20, 30, 50, 1.0, 0.1, 0.9, 0.2)
head = Head(family=spec.family, size=spec.preprocess.size, strides=spec.strides)
detector = Detector(head=head, score_threshold=0.5, iou_threshold=0.5, max_detections=9)
(found,) = detector.detect(output, [fit(spec.preprocess.size, spec.preprocess)])
assert (found.xyxy.tolist(), found.class_id.tolist()) == ([[10, 20, 30, 50]], [1])
assert _cells(Tensor(name="output", row_shape=(7, 8), dtype=np.dtype("float32")), spec.family, 3).count == 7
""",
)

_ENGINE_KIND = Addition(
    heading="Adding an engine",
    files={f"edge/engine/onnxruntime/{path.name}": path.read_text(encoding="utf-8") for path in _ENGINE.glob("*.py")},
    program=_WITH_PIPELINE
    + """
from edge.engine.section import read_model
from edge.runtime.serve.engine import start_engine
from tests.support.models import yolov8

yolov8(Path("m.onnx"))
asked = pipeline(engine="kind: onnxruntime, optimize: false")
running = start_engine(asked, read_model(asked), None)
running.engine.start(0, 1)
assert running.engine.wait(0) is not None
assert running.engine.name.startswith("onnxruntime")
""",
)

ADDITIONS = {one.heading: one for one in (_ENGINE_KIND, _CAMERA, _MESSAGE, _FAMILY)}


pytestmark = pytest.mark.slow_but(
    "test_a_tiny_addition_works_with_these_files", reason="further figures of this machine"
)

PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
EACH = [(heading, name) for heading, addition in ADDITIONS.items() for name in addition.files]


def listed(heading: str) -> list[str]:
    """Return the files that a section of the page numbers."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)


def tried(copy: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the copy of the package, in the copy's folder; the helpers of the tests come from here."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    head = f"import edge; assert edge.__file__.startswith({str(copy)!r}), edge.__file__\n"
    command = [sys.executable, "-W", "ignore", "-c", head + program]
    return subprocess.run(command, env=environment, cwd=copy, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("heading", ADDITIONS)
def test_the_page_numbers_the_files_of_an_addition(heading):
    named = [name.replace("/NAME/", "/onnxruntime/") for name in listed(heading)]

    assert sorted(named) == sorted(ADDITIONS[heading].files)


@pytest.mark.parametrize("heading", ADDITIONS)
def test_a_tiny_addition_works_with_these_files(heading, tmp_path):
    require_gstreamer("videotestsrc")
    put_into(tmp_path, ADDITIONS[heading])

    done = tried(tmp_path, ADDITIONS[heading].program)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("heading", "name"), EACH, ids=[f"{heading}-{name}" for heading, name in EACH])
def test_it_does_not_work_without_one_of_them(heading, name, tmp_path):
    put_into(tmp_path, ADDITIONS[heading], without=name)

    done = tried(tmp_path, ADDITIONS[heading].program)

    assert done.returncode == 1
    assert "Error" in done.stderr
