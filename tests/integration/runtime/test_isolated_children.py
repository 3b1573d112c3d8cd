"""A process that is deaf to its surroundings starts others that are."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow(reason="further services over real models")

STARTS = {
    "the worker of a build": (
        "import subprocess\nfrom edge.runtime.build.engine import _WORKER\nsubprocess.run([*_WORKER, '{}'])"
    ),
    "the probe of a GPU": "from edge.engine.tensorrt.facts import probe\nprobe('tensorrt')",
}


@pytest.mark.parametrize("child", STARTS)
def test_a_child_loads_nothing_that_a_variable_names(tmp_path, child):
    ran = tmp_path / "ran"
    (tmp_path / "sitecustomize.py").write_text(f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n")

    subprocess.run(
        [sys.executable, "-I", "-c", STARTS[child]],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )

    assert not ran.exists()
