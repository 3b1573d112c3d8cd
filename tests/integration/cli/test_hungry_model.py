"""A real detector behind forty doublings of its picture: every command refuses it before memory is spent."""

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge.media.images import write_image
from edge.types import ImageSize
from tests.support.demo_model import MODEL, TABLE
from tests.support.manifests import ssh_key
from tools.street.scene import Scene

pytestmark = pytest.mark.slow_but(reason="commands on further models and options: the first row of each test is quick")

# The picture after the thirtieth doubling is 300 TB; a command with all its libraries takes a tenth of this.
MOST_BYTES = 2 << 30
# By a small process in between: what a child is said to have used is never less than what who started it has.
MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stderr=subprocess.STDOUT)
print("used", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, flush=True)
sys.exit(done.returncode)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the hungry model, a pipeline that serves it, pictures and a key."""
    folder = tmp_path_factory.mktemp("hungry")
    onnx.save(_hungry(MODEL), folder / "hungry.onnx")
    shutil.copy(TABLE, folder)
    (folder / "pictures").mkdir()
    for seed in range(2):
        picture, _ = Scene(seed, ImageSize(width=640, height=360)).frame(40)
        write_image(folder / "pictures" / f"{seed}.png", picture)
    ssh_key(folder)
    (folder / "gates.yaml").write_text(
        "version: 1\nmodel: {onnx: hungry.onnx, calibration: traffic.calib.json, precision: int8}\n"
        "streams:\n  - {id: east, uri: rtsp://east/main}\n"
        "publish: {jsonl: '-'}\n"
    )
    return folder


def _hungry(path):
    model = onnx.load(path)
    images = model.graph.input[0].name
    for node in model.graph.node:
        node.input[:] = ["again" if name == images else name for name in node.input]
    names = [images, *(f"twice{number}" for number in range(40))]
    doubled = [helper.make_node("Concat", [a, a], [b], axis=1) for a, b in itertools.pairwise(names)]
    bounds = {"start": 0, "end": 3, "axis": 1}
    model.graph.initializer.extend(numpy_helper.from_array(np.array([v]), name) for name, v in bounds.items())
    doubled.append(helper.make_node("Slice", [names[-1], *bounds], ["again"]))
    nodes = [*doubled, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


@pytest.mark.parametrize(
    "words",
    [
        "edge-deploy inspect hungry.onnx",
        "edge-deploy calibrate hungry.onnx --images pictures --method minmax -o out.calib.json",
        "edge-deploy evaluate hungry.onnx --images pictures --labels pictures",
        "edge-deploy compare hungry.onnx --table traffic.calib.json --images pictures",
        "edge-deploy table qdq traffic.calib.json --model hungry.onnx -o out.onnx",
        "edge-deploy bundle gates.yaml --golden pictures --key key -o out",
        "edge-runtime run --pipeline gates.yaml --duration 1",
    ],
    ids=lambda words: " ".join(words.split()[:3]),
)
def test_it_is_refused_by_name_and_takes_no_memory(place, words):
    program, *options = words.split()
    command = [sys.executable, "-c", MEASURE, str(Path(sys.executable).with_name(program)), *options]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    told, _, used = done.stdout.rpartition("used ")
    assert "hungry.onnx: its tensors take" in " ".join(told.split()), told
    assert "Traceback" not in told
    assert done.returncode in (2, 4, 7)
    assert 0 < int(used) * 1024 < MOST_BYTES
    assert not list(place.glob("out*"))
