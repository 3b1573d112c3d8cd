"""`edge-runtime prove` on this machine: the steps as processes, and the file."""

import os
import subprocess
import sys

import pytest

from edge.roofline.proof import Verdict, decode_proof
from edge.runtime.prove.run import STEPS, prove
from tests.support.rtsp import require_gstreamer


def test_steps_of_their_own_processes_answer():
    found = prove(steps=STEPS[1:3])

    assert [step.name for step in found.steps if not step.as_service] == ["nodes", "cuda"]
    assert found.verdict is not Verdict.FAILS


@pytest.mark.slow(reason="more than a minute of measuring")
def test_all_that_this_machine_has_is_proven(tmp_path):
    require_gstreamer("parsebin", "avdec_h264", "avdec_h265")
    command = [sys.executable, "-m", "edge.cli.edge_runtime", "prove"]
    env = {**os.environ, "PYTHONPATH": os.getcwd()}

    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=660)

    (path,) = tmp_path.iterdir()
    proof = decode_proof(path.read_bytes(), "file")
    assert done.returncode == proof.exit_code
    assert path.name == f"edge-proof-{proof.host}.json"
    steps = {step.name: step for step in proof.steps if not step.as_service}
    assert list(steps) == [step.name for step in STEPS]
    # Of a loaded machine, times may be worse; nothing breaks.
    assert {row.detail for step in proof.steps for row in step.rows if row.verdict is Verdict.FAILS} == set()
    proven = {row.name for row in proof.rows() if row.verdict is Verdict.PROVEN}
    assert {"software h264-709-limited", "software h265-601-full", "software jpeg-601-full"} <= proven
    assert {"reconnects", "build beside", "counts"} <= proven
    assert [line for line in done.stdout.splitlines() if line.startswith(f"written to {path.name}")]
