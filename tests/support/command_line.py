"""`edge-deploy` as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.dask_cluster import ROOT


def start(place: Path, *arguments: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Begin `edge-deploy` as a process of its own, which leads a group as in a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "edge.cli.edge_deploy", *map(str, arguments)],
        cwd=place, env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def typed(place: Path, *arguments: object, expected: int = 0, env: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Run `edge-deploy` and return what it printed on stdout and stderr."""
    process = start(place, *arguments, env=env)
    try:
        out, err = process.communicate(timeout=300)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == expected, err
    assert "Traceback" not in err
    return out, err
