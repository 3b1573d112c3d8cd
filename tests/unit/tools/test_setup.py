"""Set-up where apt is busy or its lists are broken (apt-get, sleep: stand-ins), and in a clone of another user."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.people import NAME, ids, needs_root, shared_folder, start_as_other

SETUP = Path(__file__).parents[3] / ".ci/setup"
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1234 (apt-get)"
BROKEN = "E: The repository 'https://elsewhere.example stable Release' is not signed."


def function(name):
    """Return the text of a function of set-up."""
    return re.search(rf"^{name}\(\) \{{\n.*?^\}}\n", SETUP.read_text("utf-8"), re.DOTALL | re.MULTILINE)[0]


@pytest.fixture
def fetch_lists(tmp_path):
    """Return what fetches the lists where apt-get says `answers` one after the other, and then succeeds."""
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
        command = ["bash", "-euo", "pipefail", "-c", f"{function('fetch_lists')}fetch_lists"]
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


def counted(folder, *lines, path=os.environ["PATH"]):
    """Return what set-up notes of a log of apt or pip, and whether it goes on."""
    (folder / ".cache").mkdir(exist_ok=True)
    (folder / "log").write_text("\n".join([*lines, ""]))
    told = ["bash", "-euo", "pipefail", "-c", f"stage=test\n{function('count')}count log\necho on"]
    done = subprocess.run(
        told, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60
    )
    return (folder / ".cache/fetched").read_text().splitlines(), done.stdout


def test_what_was_fetched_is_counted_as_apt_and_pip_tell_it(tmp_path):
    lines = (
        "Get:1 http://archive.example resolute InRelease [136 kB]",
        "Get:5 http://deb.example bookworm/main amd64 libllvm15 amd64 1:15.0.6-4+b1 [23.1 MB]",
        "Collecting click<9,>=8.1.7 (from edge-deploy==0.1.0)",
        "  Downloading click-8.5.1-py3-none-any.whl (126 kB)",
    )
    notes = ["test 136000 lists", "test 23100000 libllvm15", "test 126000 click-8.5.1-py3-none-any.whl"]

    assert counted(tmp_path, *lines) == (notes, "on\n")


def test_a_count_that_fails_ends_nothing(tmp_path):
    (tmp_path / "awk").write_text("#!/bin/sh\nexit 2\n")
    (tmp_path / "awk").chmod(0o755)

    notes, said = counted(tmp_path, "Get:1 x y z [1 kB]", path=f"{tmp_path}:{os.environ['PATH']}")

    assert (notes, said) == ([], "on\n")


@needs_root
def test_a_folder_that_a_run_under_sudo_has_made_is_named_and_given_back():
    run = "import subprocess, sys\nsubprocess.run(['bash', sys.argv[1], 'demo'], stderr=sys.stdout)"
    with shared_folder() as clone:
        (clone / ".ci").mkdir()
        (clone / ".ci/setup").write_text(SETUP.read_text("utf-8"))
        (clone / ".cache").mkdir()
        shutil.chown(clone, NAME)
        said, _ = start_as_other(run, clone / ".ci/setup").communicate(timeout=60)

    assert said.startswith(f"setup: {clone}/.cache cannot be written")
    assert f"cannot be written by {NAME} (its owner: root)" in said
    assert f"sudo chown -R {':'.join(map(str, ids()))} {clone}" in said
