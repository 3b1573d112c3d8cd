"""Who noticed which mutant: kept beside the tests, so that the hours need not be spent in one go."""

import hashlib
import json
import threading
from collections.abc import Iterable
from pathlib import Path

from tests.mutations.mutants import Mutant

JOURNAL = Path(__file__).with_name("noticed.json")
NOBODY = "nobody"


class Journal:
    """Notices by mutant; one of a file that has changed since is not known. Each is on the disk when `add` returns."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._known: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def noticed(self, mutant: Mutant) -> str | None:
        """Return the test that noticed, or `NOBODY`; None: not known."""
        return self._known.get(_key(mutant))

    def add(self, mutant: Mutant, by: str) -> None:
        """Take down who noticed; of any thread."""
        with self._lock:
            self._known[_key(mutant)] = by
            self._write()

    def forget(self, mutants: Iterable[Mutant]) -> None:
        """Strike these."""
        for one in mutants:
            self._known.pop(_key(one), None)
        self._write()

    def _write(self) -> None:
        text = json.dumps(self._known, indent=1, sort_keys=True, ensure_ascii=False)
        self._path.write_text(text + "\n", encoding="utf-8")


def _key(mutant: Mutant) -> str:
    return f"{mutant.name} #{hashlib.sha256(mutant.content.encode()).hexdigest()[:8]}"
