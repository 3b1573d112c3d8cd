"""Which test notices a mutant: those that noticed others of its file first, then all of the device's, then pushes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.mutations.mutants import Mutant

ROOT = Path(__file__).parents[2]
_DEVICE = ("tests/unit/device", "tests/unit/runtime", "tests/unit/bundle", "tests/contracts/test_files_contract.py")
_PUSH = ("tests/integration/push", "tests/integration/transport")
_DEADLINE_S = 900.0
_FIRST = 12
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.M)


class Workshop:
    """A copy of the project in which one file at a time is wrong."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in _tracked():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        self._noticed: dict[str, list[str]] = {}
        for shared in (".venv", ".cache", ".git"):
            if (ROOT / shared).exists():
                (folder / shared).symlink_to(ROOT / shared)

    def require_sound(self) -> None:
        """Raise SystemExit if a test fails without any mutant: it would be taken for one that noticed."""
        for stage in (_DEVICE, _PUSH):
            if failed := self._first_sure_failure(stage):
                raise SystemExit(f"nothing is wrong yet, and this fails: {failed}")

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
        if first := self._noticed.get(mutant.path):
            yield tuple(first[:_FIRST])
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
        failed = _FAILED.search(told)
        return failed[1] if failed else f"pytest ended with {child.returncode}: {told.splitlines()[-1:]}"


def _tracked() -> list[str]:
    told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    return [name for name in map(os.fsdecode, told.split(b"\0")) if name and (ROOT / name).is_file()]
