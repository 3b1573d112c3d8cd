"""Set-up on a machine whose package manager is busy or whose lists are broken; apt-get and sleep are stand-ins."""

import os
import re
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[3] / ".ci/setup"
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1234 (apt-get)"
BROKEN = "E: The repository 'https://elsewhere.example stable Release' is not signed."


@pytest.fixture
def fetch_lists(tmp_path):
    """Return what fetches the lists where apt-get says `answers` one after the other, and then succeeds."""
    body = re.search(r"^fetch_lists\(\) \{\n.*?^\}\n", SETUP.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    asked = tmp_path / "asked"

    def fetch_lists(*answers: str):
        for number, answer in enumerate(answers, 1):
            (tmp_path / f"answer{number}").write_text(f"{answer}\n")
        answer = f"cat {tmp_path}/answer$(wc -l <{asked}) 2>/dev/null && exit 100"
        stand_in = f"#!/bin/sh\necho x >>{asked}\n{answer}\necho fetched\n"
        for name, content in (("apt-get", stand_in), ("sleep", "#!/bin/sh\n")):
            (tmp_path / name).write_text(content)
            (tmp_path / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        command = ["bash", "-euo", "pipefail", "-c", f"{body[0]}fetch_lists"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
        return done, len(asked.read_text().split())

    return fetch_lists


def test_set_up_waits_for_another_apt_and_says_so_once(fetch_lists):
    done, times = fetch_lists(LOCKED, LOCKED)

    assert (done.stdout, times) == ("fetched\n", 3)
    assert done.stderr.count("waiting") == 1


def test_a_broken_repository_of_somebody_ends_nothing_and_is_kept_for_the_log(fetch_lists):
    done, times = fetch_lists(BROKEN)

    assert (done.stdout, times) == (f"{BROKEN}\n", 1)
