"""Whatever call of the driver fails, one after the other: an engine error, no hang, no abort, nothing left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import models

pytestmark = pytest.mark.slow(reason="refuses each call of the driver in turn")

ROOT = Path(__file__).parents[4]
OURS = ("EngineError: ", "OutOfMemoryError: ", "CudaCallError: ", "CudaMemoryError: ")
INVALID, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 1, 2, 700  # CUresult
CALLS = {"pycuda": 100, "ctypes": 90}  # at least: pycuda says the shape of a block by a call of its own
SEEN = {
    "engine": {"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch"},
    "observing": {"cuMemsetD32Async", "cuMemcpyDtoHAsync_v2"},
    "averaging": {"cuMemcpyDtoHAsync_v2"},
    "profiler": {"cuMemcpyDtoHAsync_v2"},
}


@pytest.mark.parametrize(
    ("driver", "of", "result", "is_integrated"),
    [
        ("pycuda", "engine", INVALID, 1),
        ("pycuda", "engine", ILLEGAL_ADDRESS, 0),
        ("pycuda", "observing", OUT_OF_MEMORY, 0),
        ("pycuda", "averaging", ILLEGAL_ADDRESS, 0),
        ("pycuda", "profiler", INVALID, 0),
        ("ctypes", "engine", INVALID, 1),
        ("ctypes", "engine", ILLEGAL_ADDRESS, 0),
        ("ctypes", "observing", OUT_OF_MEMORY, 0),
    ],
)
def test_every_call_that_is_refused_is_an_engine_error_and_leaves_nothing_behind(
    tmp_path, driver, of, result, is_integrated
):
    model = models.yolov8(tmp_path / "m.onnx")
    arguments = [str(model), of, str(result), str(is_integrated)]

    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.cuda_driver.refusals", *arguments],
        cwd=ROOT,
        env={**os.environ, "EDGE_CUDA": driver},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr[-2000:]  # neither did it hang nor was it aborted
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(found) > (60 if of == "profiler" else CALLS[driver])
    begins = {"cuInit"} if driver == "pycuda" else set()  # pycuda begins once more after `open_driver`
    assert SEEN[of] | begins | {"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuMemHostAlloc"} <= {
        one["call"] for one in found
    }
    for one in found:
        assert one["left"] == {}, one
        told = [one[phase] for phase in ("load", "run") if one[phase] is not None] + one["close"]
        assert all(text.startswith(OURS) for text in told), one
