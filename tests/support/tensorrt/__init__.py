"""NVIDIA's own in the tests: what `.ci/setup` has fetched, and programs that use it in processes of their own.

A library of NVIDIA's may crash where there is no GPU, and only one version of it goes into a process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CACHE = ROOT / ".cache/tensorrt"
RTX = "rtx-1.7.1.116"
VERSIONS = ("8.6.1", "10.3.0", "10.16.1.11", "11.4.0.106", RTX)
MODULE = "tensorrt_bindings"
RTX_MODULE = "tensorrt_rtx_bindings"


def folder_of(version: str) -> Path:
    """Return where a version lies, or skip: not every version is there for every Python and machine."""
    folder = CACHE / version
    if not folder.is_dir():
        pytest.skip(f"TensorRT {version} is not in {CACHE}; .ci/setup test fetches what there is")
    return folder


def module_of(version: str) -> str:
    return RTX_MODULE if version == RTX else MODULE


def run_python(program: str, job: object, *, path: list[Path], libraries: Path | None = None) -> object:
    """Run `python -m program` with `job` on its input, and return what it prints; both are JSON."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(one) for one in [ROOT, *path])}
    if libraries is not None:
        environment["LD_LIBRARY_PATH"] = str(libraries)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", program],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env=environment,
        timeout=500,
        cwd=ROOT,
    )
    assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])
