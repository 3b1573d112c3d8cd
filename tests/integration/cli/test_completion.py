"""What a person gets who presses Tab in a real bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed"),
    pytest.mark.slow_but(reason="commands on further models and options: the first row of each test is quick"),
]


def pressed_tab(line: str) -> list[str]:
    """Return what bash offers behind `line`, by the script that the command gives."""
    words = line.split(" ")
    name = words[0]
    variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
    script = (
        f'eval "$({variable}=bash_source {name})"; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; '
        f"_{name.replace('-', '_')}_completion {name}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("edge-deploy cal", ["calibrate"]),
        ("edge-deploy roofline --mac", ["--machine"]),
        ("edge-deploy table q", ["qdq"]),
        ("edge-deploy calibrate --method m", ["mse", "minmax"]),
        ("edge-runtime ben", ["bench"]),
    ],
)
def test_what_was_begun_is_completed(line, offered):
    assert sorted(pressed_tab(line)) == sorted(offered)
