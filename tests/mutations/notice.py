"""Which test notices a mutant: those that noticed others of its file first, then all that run its line."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mutations.mutants import Mutant
from tests.mutations.reach import Reach, keep, look, recall

ROOT = Path(__file__).parents[2]
_DEVICE = ("tests/unit/device", "tests/unit/runtime", "tests/unit/bundle", "tests/contracts/test_files_contract.py")
_PUSH = ("tests/integration/push", "tests/integration/transport")
_ROOMS = ("edge/device", "edge/runtime/agent")
_LEARNED = ROOT / ".cache/mutations-reach.json"
_DEADLINE_S = 900.0
_FIRST = 12
_LONG_S = 5.0
_AT_ONCE = 120  # of those that run a line, the quickest first
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.M)


class Workshop:
    """A copy of the project in which one file at a time is wrong."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        for name in _tracked():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)  # edge/pipelines is a link
        self._noticed: dict[str, list[str]] = {}
        self._reach = Reach({}, {})
        for shared in (".venv", ".cache", ".git"):
            if (ROOT / shared).exists():
                (folder / shared).symlink_to(ROOT / shared)

    def learn(self) -> Reach:
        """Return who runs which line, as it was learned last or anew if the code or the tests have changed since.

        Raises:
            SystemExit: if a test fails without any mutant: it would be taken for a notice.
        """
        of = _digest((*_ROOMS, *_DEVICE, *_PUSH))
        if (known := recall(_LEARNED, of)) is not None:
            return known
        with tempfile.TemporaryDirectory(prefix="edge-reach-") as data:
            reach, told = look(self._folder, Path(data), (*_DEVICE, *_PUSH))
        for failed in _FAILED.findall(told):
            if self.failure_without_mutant((failed,)):
                raise SystemExit(f"nothing is wrong yet, and this fails: {failed}")
        keep(_LEARNED, of, reach)
        return reach

    def teach(self, reach: Reach) -> None:
        """Have the tests that run a line be asked before the others."""
        self._reach = reach

    def who_notices(self, mutant: Mutant, *, is_patient: bool) -> str | None:
        """Return the first test that fails, or what else tells; None if all pass.

        Args:
            is_patient: ask those that take long, and where nobody is known to run the line all, too.
        """
        by = self._who_notices(mutant, is_patient=is_patient)
        if by is not None and "::" in by:
            self.remember(mutant.path, by)
        return by

    def remember(self, path: str, test: str) -> None:
        """Have a test that noticed one mutant of a file be the first to look at the next."""
        known = self._noticed.setdefault(path, [])
        if test in known:
            known.remove(test)
        known.insert(0, test)

    def who_of(self, tests: Sequence[str], mutant: Mutant) -> str | None:
        """Return the first of some tests that fails, or what else tells; None if all pass."""
        with self._wrong(mutant):
            return self._first_sure_failure(tuple(tests))

    def failure_without_mutant(self, tests: Sequence[str]) -> str | None:
        """Return the first of some tests that fails though nothing is wrong."""
        return self._first_failure(tuple(tests))

    def _who_notices(self, mutant: Mutant, *, is_patient: bool) -> str | None:
        with self._wrong(mutant):
            stages = self._patient_stages(mutant) if is_patient else self._stages(mutant)
            return next(filter(None, map(self._first_sure_failure, stages)), None)

    @contextmanager
    def _wrong(self, mutant: Mutant) -> Iterator[None]:
        path = self._folder / mutant.path
        whole = path.read_bytes()
        path.write_text(mutant.content, encoding="utf-8")
        try:
            yield
        finally:
            path.write_bytes(whole)

    def _stages(self, mutant: Mutant) -> Iterator[tuple[str, ...]]:
        room, name = Path(mutant.path).parent.relative_to("edge"), Path(mutant.path).stem
        nearest = f"tests/unit/{room}/test_{name}.py"
        on_line = self._reach.on(mutant.path, mutant.line, at_most_s=_LONG_S)
        if first := [one for one in self._noticed.get(mutant.path, ()) if one in on_line or not on_line]:
            yield tuple(first[:_FIRST])
        for start in range(0, len(on_line), _AT_ONCE):
            yield tuple(on_line[start : start + _AT_ONCE])
        if not on_line and (self._folder / nearest).is_file():
            yield (nearest,)

    def _patient_stages(self, mutant: Mutant) -> Iterator[tuple[str, ...]]:
        if long := self._reach.on(mutant.path, mutant.line, longer_s=_LONG_S):
            yield tuple(long)
        if not self._reach.on(mutant.path, mutant.line):  # run by a process that is killed before it tells
            yield _DEVICE
            yield _PUSH

    def _first_sure_failure(self, tests: tuple[str, ...]) -> str | None:
        """Return the first test that fails, and fails again by itself: what a busy machine did is no notice."""
        chance: list[str] = []
        while failed := self._first_failure(tests, *(f"--deselect={name}" for name in chance)):
            if "::" not in failed or self._first_failure((failed,)):
                return failed
            chance.append(failed)
        return None

    def _first_failure(self, tests: tuple[str, ...], *options: str) -> str | None:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options, *tests]
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
        if "ERROR: not found:" in told:
            raise SystemExit(f"a test that was there is not there: {told}")
        failed = _FAILED.search(told)
        return failed[1] if failed else f"pytest ended with {child.returncode}: {told.splitlines()[-1:]}"


def _digest(places: tuple[str, ...]) -> str:
    found = hashlib.sha256()
    for name in sorted(_tracked()):
        if name.startswith(places):
            found.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return found.hexdigest()


def _tracked() -> list[str]:
    told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    return [
        name
        for name in map(os.fsdecode, told.split(b"\0"))
        if name and ((ROOT / name).is_file() or (ROOT / name).is_symlink())
    ]
