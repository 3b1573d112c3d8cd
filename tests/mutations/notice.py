"""Which test notices a mutant: first those that noticed others of its file or run its line, then all others."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.mutations.mutants import Mutant
from tests.mutations.reach import Reach, look

ROOT = Path(__file__).parents[2]
_DEVICE = ("tests/unit/device", "tests/unit/runtime", "tests/unit/bundle", "tests/contracts/test_files_contract.py")
_PUSH = ("tests/integration/push", "tests/integration/transport")
_DEADLINE_S = 900.0
_FIRST = 12
_ON_LINE = 120  # of those that run a line; the others come with the rest
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.M)


class Workshop:
    """A copy of the project in which one file at a time is wrong."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        for name in _tracked():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        self._noticed: dict[str, list[str]] = {}
        self._reach: Reach = {}
        for shared in (".venv", ".cache", ".git"):
            if (ROOT / shared).exists():
                (folder / shared).symlink_to(ROOT / shared)

    def learn(self) -> Reach:
        """Return who runs which line; SystemExit if a test fails without any mutant: it would be taken for a notice."""
        with tempfile.TemporaryDirectory(prefix="edge-reach-") as data:
            reach, told = look(self._folder, Path(data), (*_DEVICE, *_PUSH))
        for failed in _FAILED.findall(told):
            if self._first_failure((failed,)):
                raise SystemExit(f"nothing is wrong yet, and this fails: {failed}")
        return reach

    def teach(self, reach: Reach) -> None:
        """Have the tests that run a line be asked before the others."""
        self._reach = reach

    def who_notices(self, mutant: Mutant) -> str | None:
        """Return the first test that fails, or what else tells; None if all pass."""
        by = self._who_notices(mutant)
        if by is not None and "::" in by:
            self.remember(mutant.path, by)
        return by

    def remember(self, path: str, test: str) -> None:
        """Have a test that noticed one mutant of a file be the first to look at the next."""
        known = self._noticed.setdefault(path, [])
        if test in known:
            known.remove(test)
        known.insert(0, test)

    def _who_notices(self, mutant: Mutant) -> str | None:
        path = self._folder / mutant.path
        whole = path.read_bytes()
        path.write_text(mutant.content, encoding="utf-8")
        try:
            return next(filter(None, map(self._first_sure_failure, self._stages(mutant))), None)
        finally:
            path.write_bytes(whole)

    def _stages(self, mutant: Mutant) -> Iterator[tuple[str, ...]]:
        room, name = Path(mutant.path).parent.relative_to("edge"), Path(mutant.path).stem
        nearest = f"tests/unit/{room}/test_{name}.py"
        on_line = self._reach.get(mutant.path, {}).get(mutant.line, ())
        if first := [one for one in self._noticed.get(mutant.path, ()) if one in on_line or not on_line]:
            yield tuple(first[:_FIRST])
        if on_line:
            yield tuple(on_line[:_ON_LINE])
        if (self._folder / nearest).is_file():
            yield (nearest,)
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
        if child.returncode == 0:
            return None
        if "ERROR: not found:" in told:
            raise SystemExit(f"a test that was there is not there: {told}")
        failed = _FAILED.search(told)
        return failed[1] if failed else f"pytest ended with {child.returncode}: {told.splitlines()[-1:]}"


def _tracked() -> list[str]:
    told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    return [name for name in map(os.fsdecode, told.split(b"\0")) if name and (ROOT / name).is_file()]
