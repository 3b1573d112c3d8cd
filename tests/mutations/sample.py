"""A sample of mutants over any rooms, and which half of the tests notices each: the nearest tests are asked first.

Besides the steps and checks of `mutants`, each condition of an `if` is turned round.
"""

import ast
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.mutations.mutants import Mutant, mutants_of
from tests.mutations.notice import ROOT, Workshop

QUICK, REST = ("-m", "not slow"), ("-m", "slow")
_MANY = ("-n", "auto", "--dist", "loadfile")
_EVERYWHERE = ("tests/unit", "tests/contracts", "tests/test_house.py")


def files_of(rooms: str) -> list[str]:
    """Return the files of rooms, `all` or names with commas between them."""
    places = [ROOT / "edge"] if rooms == "all" else [ROOT / "edge" / room for room in rooms.split(",")]
    if missing := [str(place) for place in places if not place.is_dir()]:
        raise SystemExit(f"no such room: {', '.join(missing)}")
    return [str(path.relative_to(ROOT)) for place in places for path in sorted(place.rglob("*.py"))]


def sample_of(files: Sequence[str], *, size: int, seed: int) -> list[Mutant]:
    """Return so many mutants, each of a file of its own as long as there are files."""
    chance = random.Random(seed)
    shuffled = chance.sample(files, len(files))
    found = {file: sorted(_all_mutants(file), key=lambda one: chance.random()) for file in shuffled}
    in_turns = [one for turn in range(size) for some in found.values() for one in some[turn : turn + 1]]
    return in_turns[:size]


def _all_mutants(path: str) -> Iterator[Mutant]:
    yield from mutants_of(ROOT, path)
    source = (ROOT / path).read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        for test in (node.test for node in ast.walk(function) if isinstance(node, ast.If)):
            if test.lineno != test.end_lineno or any(isinstance(one, ast.NamedExpr) for one in ast.walk(test)):
                continue
            line = lines[test.lineno - 1].encode()
            begin, end = test.col_offset, test.end_col_offset or 0
            turned = (line[:begin] + b"not (" + line[begin:end] + b")" + line[end:]).decode()
            content = "".join([*lines[: test.lineno - 1], turned, *lines[test.lineno :]])
            yield Mutant(path, test.lineno, function.name, "condition", line[begin:end].decode(), content)


def ask(mutants: Sequence[Mutant], *, is_patient: bool) -> int:
    """Print which half notices each, and how many did; return 1 if nobody noticed one.

    Args:
        is_patient: ask all tests of one machine about what the nearest do not notice: up to half an hour for each.
    """
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="edge-mutations-") as folder:
        workshop = Workshop(Path(folder) / "0")
        for mutant in mutants:
            half, by = _who_notices(workshop, mutant, is_patient=is_patient)
            found[half] += 1
            print(f"{half}: {mutant.path}:{mutant.line} {mutant.name.partition(' ')[2]}: {by}", flush=True)
    print(", ".join(f"{count} {half}" for half, count in found.items()))
    return 1 if found["unnoticed"] else 0


def _who_notices(workshop: Workshop, mutant: Mutant, *, is_patient: bool) -> tuple[str, str | None]:
    for half, tests in _stages(mutant, is_patient=is_patient):
        by_chance: list[str] = []
        while by := workshop.who_of((*tests, *(f"--deselect={one}" for one in by_chance)), mutant):
            if "::" not in by or not workshop.failure_without_mutant((by,)):
                return half, by
            by_chance.append(by)
            print(f"fails without any mutant: {by}", file=sys.stderr, flush=True)
    return "unnoticed", None


def _stages(mutant: Mutant, *, is_patient: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    path = Path(mutant.path).relative_to("edge").with_suffix("")
    module = ".".join(("edge", *path.parts)).removesuffix(".__init__")
    named = [one for one in _test_files() if module in one.read_text(encoding="utf-8")]
    unit = [one for one in named if "integration" not in one.parts]
    for some in (unit, [one for one in named if one not in unit]):
        if some:
            yield "make test", (*(str(one.relative_to(ROOT)) for one in some), *QUICK)
    rooms = [f"tests/{folder}/{room}" for folder in ("unit", "integration") for room in path.parts[:-1]]
    if there := [one for one in rooms if (ROOT / one).is_dir()]:
        yield "make test", (*there, *QUICK, *_MANY)
    yield "make test", (*_EVERYWHERE, *QUICK, *_MANY)
    if is_patient:
        yield "make test", ("tests/integration", *QUICK, *_MANY)
        yield "make test-rest", ("tests/unit", "tests/integration", *REST, *_MANY)


def _test_files() -> list[Path]:
    folders = ("unit", "contracts", "integration")
    return sorted(path for folder in folders for path in (ROOT / "tests" / folder).rglob("test_*.py"))
