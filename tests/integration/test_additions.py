"""docs/extending.md lists the files of an addition: a tiny one works with them, and fails without any of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.additions import ADDITIONS, ROOT, put_into
from tests.support.rtsp import require_gstreamer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow_but("test_a_tiny_addition_works_with_these_files", reason="further figures of this machine"),
]

PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
EACH = [(heading, name) for heading, addition in ADDITIONS.items() for name in addition.files]


def listed(heading: str) -> list[str]:
    """Return the files that a section of the page numbers."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)


def tried(copy: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the copy of the package, in the copy's folder; the helpers of the tests come from here."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    head = f"import edge; assert edge.__file__.startswith({str(copy)!r}), edge.__file__\n"
    command = [sys.executable, "-W", "ignore", "-c", head + program]
    return subprocess.run(command, env=environment, cwd=copy, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("heading", ADDITIONS)
def test_the_page_numbers_the_files_of_an_addition(heading):
    named = [name.replace("/NAME/", "/onnxruntime/") for name in listed(heading)]

    assert sorted(named) == sorted(ADDITIONS[heading].files)


@pytest.mark.parametrize("heading", ADDITIONS)
def test_a_tiny_addition_works_with_these_files(heading, tmp_path):
    require_gstreamer("videotestsrc")
    put_into(tmp_path, ADDITIONS[heading])

    done = tried(tmp_path, ADDITIONS[heading].program)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("heading", "name"), EACH, ids=[f"{heading}-{name}" for heading, name in EACH])
def test_it_does_not_work_without_one_of_them(heading, name, tmp_path):
    put_into(tmp_path, ADDITIONS[heading], without=name)

    done = tried(tmp_path, ADDITIONS[heading].program)

    assert done.returncode == 1
    assert "Error" in done.stderr
