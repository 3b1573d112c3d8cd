"""Take each step and check of the device's code away in turn: python -m tests.mutations [FILE ...] [--jobs N].

Writes docs/mutations.md when it goes through all files. Hours of one core; not part of `make test`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutations.mutants import Mutant, mutants_of
from tests.mutations.notice import ROOT, Workshop
from tests.mutations.page import PAGE, page
from tests.mutations.reviewed import REVIEWED

ROOMS = ("edge/device", "edge/runtime/agent")


def main(words: Sequence[str]) -> int:
    """Return 0 if every mutant was noticed or has been reviewed, else 1."""
    options = _options(words)
    files = options.files or [
        str(one.relative_to(ROOT)) for room in ROOMS for one in sorted((ROOT / room).rglob("*.py"))
    ]
    mutants = [one for file in files for one in mutants_of(ROOT, file) if one.name not in REVIEWED]
    noticed = _noticed(mutants, options.jobs, Path(options.journal))
    unnoticed = [one for one in mutants if noticed[one.name] is None]
    for one in unnoticed:
        print(f"UNNOTICED {one.path}:{one.line} {one.name}")
    print(f"{len(mutants)} mutants, {len(unnoticed)} unnoticed, {len(REVIEWED)} reviewed")
    if not options.files:
        PAGE.write_text(page(mutants, noticed), encoding="utf-8")
    return 1 if unnoticed else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("files", nargs="*", help="only these; the page is not written then")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--journal", default=".cache/mutations.json", help="where to go on after an interruption")
    return parser.parse_args(words)


def _noticed(mutants: list[Mutant], jobs: int, journal: Path) -> dict[str, str | None]:
    """Return by name who noticed; what a run before found for the same content of a file is taken from the journal."""
    known: dict[str, str] = json.loads(journal.read_text()) if journal.is_file() else {}
    found: dict[str, str | None] = {}
    workshops: SimpleQueue[Workshop] = SimpleQueue()

    def look(mutant: Mutant) -> None:
        workshop = workshops.get()
        try:
            by = workshop.who_notices(mutant)
        finally:
            workshops.put(workshop)
        found[mutant.name] = by
        print(f"{len(found)}/{len(mutants)} {mutant.name}: {by}", flush=True)
        if by is not None:
            known[mutant.name] = by
            journal.write_text(json.dumps(known, indent=1))

    found.update({one.name: known[one.name] for one in mutants if one.name in known})
    with tempfile.TemporaryDirectory(prefix="edge-mutations-") as folder, ThreadPoolExecutor(jobs) as pool:
        for number in range(jobs):
            (Path(folder) / str(number)).mkdir()
            workshop = Workshop(Path(folder) / str(number))
            for one in mutants:
                if "::" in (found.get(one.name) or ""):
                    workshop.remember(one.path, str(found[one.name]))
            workshops.put(workshop)
        reach = workshop.learn()
        for _ in range(jobs):
            workshop = workshops.get()
            workshop.teach(reach)
            workshops.put(workshop)
        list(pool.map(look, [one for one in mutants if one.name not in found]))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
