"""Ctrl-C while a command is still being imported: on a slow disk that takes seconds."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_ctrl_c_during_imports_is_answered_in_one_word",
    "test_ctrl_c_where_python_drops_errors_is_answered_behind_that",
    reason="commands on further models and options",
)
SCRIPTS = Path(sys.executable).parent
SLOW = "import pathlib, time\npathlib.Path({mark!r}).touch()\ntime.sleep(600)\n"


@pytest.mark.parametrize(
    ("command", "slow"),
    [
        (["edge-deploy", "--help"], "click"),  # before anything of the command is there
        (["edge-runtime", "doctor"], "click"),
        (["edge-deploy", "doctor"], "rich"),  # what a command imports by itself
        (["edge-deploy", "inspect", "model.onnx"], "onnx"),
    ],
)
def test_ctrl_c_during_imports_is_answered_in_one_word(tmp_path, command, slow):
    mark, temporary = tmp_path / "importing", tmp_path / "tmp"
    temporary.mkdir()
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{slow}.py").write_text(SLOW.format(mark=str(mark)))
    (tmp_path / "model.onnx").write_bytes(b"\x08\x07")
    process = subprocess.Popen(
        [shutil.which(command[0], path=str(SCRIPTS)), *command[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "modules"), "TMPDIR": str(temporary)},
    )
    try:
        wait_until(mark.exists, what="it imports")
        process.send_signal(signal.SIGINT)
        printed, told = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()

    assert (process.returncode, printed, told.strip()) == (130, "", "interrupted")
    assert list(temporary.iterdir()) == []


DROPS = """
import gc, sys, time
from edge.cli.interrupts import answer_interrupts, hand_over_interrupts
if "module" not in sys.argv:
    answer_interrupts()
hand_over_interrupts()
came = []
def callback(*_):
    if not came:
        came.append(print("collects", flush=True))
        time.sleep(600)
gc.callbacks.append(callback)
gc.collect()
time.sleep(600)
"""


@pytest.mark.parametrize("begun_as", ["script", "module"])
def test_ctrl_c_where_python_drops_errors_is_answered_behind_that(begun_as):
    """Dask calls back from the garbage collector; what is raised there goes nowhere."""
    command = [sys.executable, "-c", DROPS, begun_as]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "collects\n"
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.communicate()

    assert (process.returncode, told.splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")


def test_a_command_that_was_begun_in_the_background_is_not_interrupted(tmp_path):
    """A shell without job control has `&` ignore Ctrl-C."""
    ended = subprocess.run(
        ["env", "--ignore-signal=INT", shutil.which("edge-deploy", path=str(SCRIPTS)), "--version"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_asks_itself(tmp_path))},
    )
    assert "SIG_IGN" in ended.stderr


def _asks_itself(folder):
    (folder / "click.py").write_text(
        "import signal, sys, os\n"
        "print(signal.getsignal(signal.SIGINT).name, file=sys.stderr, flush=True)\n"
        "os._exit(0)\n"
    )
    return folder
