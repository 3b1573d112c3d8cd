"""NumPy's BLAS has no threads of its own under our commands, which a process would wait for at its end."""

import os
import subprocess
import sys

import pytest

COUNT = """
import os, sys
from edge.cli import edge_deploy, edge_runtime, entry
def main():
    import numpy as np
    np.ones((600, 600)) @ np.ones((600, 600))
    print(os.environ["OPENBLAS_NUM_THREADS"], len(os.listdir("/proc/self/task")))
edge_deploy.main = edge_runtime.main = main
getattr(entry, sys.argv[1])()
"""


@pytest.mark.parametrize("command", ["edge_deploy", "edge_runtime"])
def test_a_matrix_product_starts_no_threads_unless_the_environment_asks_for_them(command):
    def told(**asked):
        others = {name: text for name, text in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
        words, environ = [sys.executable, "-c", COUNT, command], {**others, **asked}
        return subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout.split()

    assert told() == ["1", "1"]
    assert told(OPENBLAS_NUM_THREADS="2")[0] == "2"
