"""Whatever call of the driver fails, one after the other: an engine error, no hang, no abort, nothing left behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import models

ROOT = Path(__file__).parents[4]
OURS = ("EngineError: ", "CudaCallError: ")
INVALID, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 1, 2, 700  # CUresult
SEEN = {
    "engine": {"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch"},
    "observing": {"cuMemsetD32Async", "cuMemcpyDtoHAsync_v2"},
    "averaging": {"cuMemcpyDtoHAsync_v2"},
    "profiler": {"cuMemcpyDtoHAsync_v2", "cuEventElapsedTime"},
}


@pytest.mark.parametrize(
    ("of", "result", "is_integrated"),
    [
        ("engine", INVALID, 1),
        ("engine", ILLEGAL_ADDRESS, 0),
        ("observing", OUT_OF_MEMORY, 0),
        ("averaging", ILLEGAL_ADDRESS, 0),
        ("profiler", INVALID, 0),
    ],
)
def test_every_call_that_is_refused_is_an_engine_error_and_leaves_nothing_behind(tmp_path, of, result, is_integrated):
    model = models.yolov8(tmp_path / "m.onnx")
    arguments = [str(model), of, str(result), str(is_integrated)]

    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.cuda_driver.refusals", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr[-2000:]  # neither did it hang nor was it aborted
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(found) > (75 if of == "profiler" else 100)
    assert SEEN[of] | {"cuInit", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuMemHostAlloc"} <= {
        one["call"] for one in found
    }
    for one in found:
        assert one["left"] == {}, one
        told = [one[phase] for phase in ("load", "run") if one[phase] is not None] + one["close"]
        assert all(text.startswith(OURS) for text in told), one
