"""Which test notices a mutant: those that name its module first, then its rooms, then all."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutations.mutants import Mutant

ROOT = Path(__file__).parents[2]
_QUICK, _REST = ("-m", "not slow"), ("-m", "slow")
_MANY = ("-n", "auto", "--dist", "loadfile")
_DEADLINE_S = 900.0
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.M)


class Workshop:
    """A copy of the project in which one file at a time is wrong."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        for name in _tracked():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)  # edge/pipelines is a link
        for shared in (".venv", ".cache", ".git"):
            if (ROOT / shared).exists():
                (folder / shared).symlink_to(ROOT / shared)

    def who_notices(self, mutant: Mutant, *, is_patient: bool) -> tuple[str, str | None]:
        """Return the half of the tests and the first one that fails, or what else tells; None if all pass.

        Args:
            is_patient: ask all tests of one machine about what the nearest do not notice: up to half an hour for each.
        """
        for half, tests in _stages(mutant, is_patient=is_patient):
            by_itself: list[str] = []
            while by := self._failure_with(mutant, (*tests, *(f"--deselect={one}" for one in by_itself))):
                if "::" not in by or not self._first_failure((by,)):
                    return half, by
                by_itself.append(by)
                print(f"fails without any mutant: {by}", file=sys.stderr, flush=True)
        return "unnoticed", None

    def _failure_with(self, mutant: Mutant, words: tuple[str, ...]) -> str | None:
        path = self._folder / mutant.path
        whole = path.read_bytes()
        path.write_text(mutant.content, encoding="utf-8")
        try:
            return self._first_failure(words)
        finally:
            path.write_bytes(whole)

    def _first_failure(self, words: tuple[str, ...]) -> str | None:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *words]
        environment = {**os.environ, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"}
        child = subprocess.Popen(
            command,
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            told, _ = child.communicate(timeout=_DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return f"no end within {_DEADLINE_S:.0f} s"
        if child.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
            return None
        failed = _FAILED.search(told)
        return failed[1] if failed else f"pytest ended with {child.returncode}: {told.splitlines()[-1:]}"


def _stages(mutant: Mutant, *, is_patient: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield which half the tests to ask next belong to, and what names them to pytest."""
    path = Path(mutant.path).relative_to("edge").with_suffix("")
    module = ".".join(("edge", *path.parts)).removesuffix(".__init__")
    named = [one for one in _test_files() if module in one.read_text(encoding="utf-8")]
    unit = [one for one in named if "integration" not in one.parts]
    for some in (unit, [one for one in named if one not in unit]):
        if some:
            yield "make test", (*(str(one.relative_to(ROOT)) for one in some), *_QUICK)
    rooms = [f"tests/{folder}/{room}" for folder in ("unit", "integration") for room in path.parts[:-1]]
    if there := [one for one in rooms if (ROOT / one).is_dir()]:
        yield "make test", (*there, *_QUICK, *_MANY)
    yield "make test", ("tests/unit", "tests/contracts", "tests/test_house.py", *_QUICK, *_MANY)
    if is_patient:
        yield "make test", ("tests/integration", *_QUICK, *_MANY)
        yield "make test-rest", ("tests/unit", "tests/integration", *_REST, *_MANY)


def _test_files() -> list[Path]:
    folders = ("unit", "contracts", "integration")
    return sorted(path for folder in folders for path in (ROOT / "tests" / folder).rglob("test_*.py"))


def _tracked() -> list[str]:
    told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    return [
        name
        for name in map(os.fsdecode, told.split(b"\0"))
        if name and ((ROOT / name).is_file() or (ROOT / name).is_symlink())
    ]
