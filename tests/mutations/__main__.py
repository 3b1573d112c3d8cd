"""Take each step and check of the device's code away in turn: python -m tests.mutations [FILE ...].

Appends to out/mutations.md which test noticed each, and goes on behind what is there. Hours of one core; not part of
`make test`.

Of any other files or rooms a sample, with conditions turned round too: ... --rooms all --sample 100 --seed 1
"""

import argparse
import hashlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.mutations.mutants import Mutant, conditions_of, mutants_of
from tests.mutations.notice import ROOT, Workshop
from tests.mutations.reviewed import REVIEWED

TOLD = ROOT / "out/mutations.md"


def main(words: Sequence[str]) -> int:
    """Return 0 if every mutant was noticed or has been reviewed, else 1."""
    options = _options(words)
    files = options.files or sorted(_files_of(options.rooms))
    if options.sample:
        mutants = _sample_of(files, size=options.sample, seed=options.seed)
    else:
        mutants = [one for file in files for one in mutants_of(ROOT, file)]
    found = Counter(_ask([one for one in mutants if one.name not in REVIEWED], is_patient=options.patient))
    print(", ".join(f"{count} {half}" for half, count in found.items()))
    return 1 if found["unnoticed"] else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("files", nargs="*", help="only these")
    parser.add_argument("--rooms", default="device,runtime/agent", help="all, or names with commas between them")
    parser.add_argument("--sample", type=int, metavar="N", help="ask about so many mutants only")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--patient", action="store_true", help="ask every test about what the nearest do not notice")
    return parser.parse_args(words)


def _files_of(rooms: str) -> Iterator[str]:
    for place in [ROOT / "edge"] if rooms == "all" else [ROOT / "edge" / room for room in rooms.split(",")]:
        if not place.is_dir():
            raise SystemExit(f"no such room: {place}")
        yield from (str(path.relative_to(ROOT)) for path in place.rglob("*.py"))


def _sample_of(files: Sequence[str], *, size: int, seed: int) -> list[Mutant]:
    """Return so many mutants, each of a file of its own as long as there are files."""
    chance = random.Random(seed)
    shuffled = chance.sample(files, len(files))
    found = [
        sorted([*mutants_of(ROOT, file), *conditions_of(ROOT, file)], key=lambda one: chance.random())
        for file in shuffled
    ]
    in_turns = [one for turn in range(size) for some in found for one in some[turn : turn + 1]]
    return in_turns[:size]


def _ask(mutants: Sequence[Mutant], *, is_patient: bool) -> Iterator[str]:
    """Yield which half of the tests notices each, and write down what noticed it.

    A line of the same change to the same file, of an earlier call, answers without a test.
    """
    TOLD.parent.mkdir(exist_ok=True)
    lines = TOLD.read_text(encoding="utf-8").splitlines() if TOLD.exists() else []
    known = dict(line.removeprefix("- ").split(": ", 1) for line in lines)
    with tempfile.TemporaryDirectory(prefix="edge-mutations-") as folder:
        workshop = Workshop(Path(folder) / "0")
        for mutant in mutants:
            key = hashlib.sha256(f"{mutant.path}\0{mutant.content}".encode()).hexdigest()[:12]
            half = known.get(key, "").partition(":")[0]
            if half in ("", "unnoticed"):
                half, by = workshop.who_notices(mutant, is_patient=is_patient)
                line = f"- {key}: {half}: {mutant.path}:{mutant.line} {mutant.name.partition(' ')[2]}: {by}"
                print(line, flush=True)
                with TOLD.open("a", encoding="utf-8") as file:
                    file.write(f"{line}\n")
            yield half


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
