"""Take each step and check of the device's code away in turn: python -m tests.mutations [FILE ...] [--jobs N].

Goes on where it was interrupted: who noticed a mutant is written down, and holds until its file changes. Writes
out/mutations.md. Hours of one core; not part of `make test`.

Of any other files or rooms a sample: python -m tests.mutations --rooms all --sample 100 --seed 1
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from tests.mutations import sample
from tests.mutations.journal import JOURNAL, NOBODY, Journal
from tests.mutations.mutants import Mutant, mutants_of
from tests.mutations.notice import ROOT, Workshop
from tests.mutations.page import PAGE, page
from tests.mutations.reviewed import REVIEWED

ROOMS = ("edge/device", "edge/runtime/agent")


def main(words: Sequence[str]) -> int:
    """Return 0 if every mutant was noticed or has been reviewed, else 1."""
    options = _options(words)
    if options.sample:
        files = options.files or sample.files_of(options.rooms)
        mutants = sample.sample_of(files, size=options.sample, seed=options.seed)
        return sample.ask(mutants, is_patient=options.patient)
    journal = Journal(JOURNAL)
    mutants = [one for file in options.files or _files() for one in mutants_of(ROOT, file) if one.name not in REVIEWED]
    if options.anew:
        journal.forget(mutants)
    if wanted := [one for one in mutants if journal.noticed(one) is None and not options.page]:
        _ask_some(wanted, options.by, journal) if options.by else _ask(wanted, options.jobs, journal)
    everyone = [one for file in _files() for one in mutants_of(ROOT, file) if one.name not in REVIEWED]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(everyone, journal), encoding="utf-8")
    unnoticed = [one for one in mutants if journal.noticed(one) == NOBODY]
    for one in unnoticed:
        print(f"UNNOTICED {one.path}:{one.line} {one.name}")
    unasked = sum(journal.noticed(one) is None for one in mutants)
    print(f"{len(mutants)} mutants, {len(unnoticed)} unnoticed, {unasked} not asked about, {len(REVIEWED)} reviewed")
    return 1 if unnoticed else 0


def _files() -> list[str]:
    return [str(one.relative_to(ROOT)) for room in ROOMS for one in sorted((ROOT / room).rglob("*.py"))]


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("files", nargs="*", help="only these")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--anew", action="store_true", help="ask again about those whose file has not changed, too")
    parser.add_argument(
        "--by", action="append", metavar="TEST", help="ask only this test (or file), and again for more"
    )
    parser.add_argument("--page", action="store_true", help="ask nobody; write the page from what is known")
    parser.add_argument("--rooms", default="all", help="of which a sample is: all, or names with commas between them")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="ask about so many mutants, and tell which half notices"
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--patient", action="store_true", help="ask every test about what the nearest do not notice")
    return parser.parse_args(words)


def _ask(mutants: Sequence[Mutant], jobs: int, journal: Journal) -> None:
    workshops: SimpleQueue[Workshop] = SimpleQueue()

    def look(mutant: Mutant, *, is_patient: bool) -> bool:
        workshop = workshops.get()
        try:
            by = workshop.who_notices(mutant, is_patient=is_patient)
        finally:
            workshops.put(workshop)
        if by or is_patient:
            journal.add(mutant, by or NOBODY)
        print(f"{mutant.name}: {by}", flush=True)
        return by is not None

    with tempfile.TemporaryDirectory(prefix="edge-mutations-") as folder, ThreadPoolExecutor(jobs) as pool:
        made = [Workshop(Path(folder) / str(number)) for number in range(jobs)]
        reach = made[0].learn()
        for workshop in made:
            workshop.teach(reach)
            workshops.put(workshop)
        noticed = pool.map(partial(look, is_patient=False), mutants)
        rest = [mutant for mutant, is_noticed in zip(mutants, list(noticed), strict=True) if not is_noticed]
        list(pool.map(partial(look, is_patient=True), rest))


def _ask_some(mutants: Sequence[Mutant], tests: Sequence[str], journal: Journal) -> None:
    """Ask only some tests; a mutant that they do not notice stays not asked about."""
    with tempfile.TemporaryDirectory(prefix="edge-mutations-") as folder:
        workshop = Workshop(Path(folder) / "0")
        if failed := workshop.failure_without_mutant(tests):
            raise SystemExit(f"nothing is wrong yet, and this fails: {failed}")
        for mutant in mutants:
            by = workshop.who_of(tests, mutant)
            if by is not None:
                journal.add(mutant, by)
            print(f"{mutant.name}: {by}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
