"""Ctrl-C in the demo: at once, in one word, nothing is left and nothing is lost."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow(reason="runs the demo whole")]


def test_ctrl_c_ends_the_preparations_of_the_demo(tmp_path):
    told, temporary = tmp_path / "told.txt", tmp_path / "tmp"
    temporary.mkdir()
    with told.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "edge.cli.edge_deploy", "demo", "--seconds", "5"],
            stdout=subprocess.DEVNULL, stderr=stream, env={**os.environ, "TMPDIR": str(temporary)},
        )  # fmt: skip
    try:
        wait_until(lambda: "calibrating" in told.read_text(), what="that it calibrates", timeout_s=120)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()

    assert told.read_text().splitlines()[-1] == "interrupted"
    assert list(temporary.iterdir()) == []


def test_ctrl_c_of_a_terminal_while_the_cameras_run_loses_no_message(tmp_path):
    told, result = tmp_path / "told.txt", tmp_path / "result.txt"
    with told.open("w") as stream, result.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "edge.cli.edge_deploy", "demo", "--seconds", "60"],
            stdout=output, stderr=stream, start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(lambda: "running 4 cameras" in told.read_text(), what="that cameras run", timeout_s=120)
        time.sleep(2.0)  # messages are on their way
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()

    assert told.read_text().splitlines()[-1] == "interrupted"
    assert "counts          balance" in result.read_text()
