"""out/mutations.md: which test noticed each mutant."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.mutations.journal import NOBODY, Journal
from tests.mutations.mutants import Mutant
from tests.mutations.notice import ROOT
from tests.mutations.reviewed import REVIEWED

PAGE = ROOT / "out/mutations.md"

_HEAD = """# What the tests of a device notice

Written by `python -m tests.mutations`; nothing here is typed by hand. Each step (a call made for its effect: a write, a
sync, a rename, a record), each check (an error that is raised) and each pair of neighbouring steps of `edge/device` and
of the agent was left out, or turned round, in turn; the test named is the first that failed.

{total} mutants: {noticed} noticed, {unnoticed} unnoticed, {reviewed} reviewed and found to change nothing, {unasked}
not asked about yet, or not since their file changed.
"""


def page(mutants: Sequence[Mutant], journal: Journal) -> str:
    """Return the page."""
    counts = Counter({None: "unasked", NOBODY: "unnoticed"}.get(journal.noticed(one), "noticed") for one in mutants)
    counted = {kind: counts[kind] for kind in ("noticed", "unnoticed", "unasked")}
    parts = [_HEAD.format(total=len(mutants) + len(REVIEWED), reviewed=len(REVIEWED), **counted)]
    by_file: dict[str, list[Mutant]] = defaultdict(list)
    for one in mutants:
        by_file[one.path].append(one)
    for path, some in by_file.items():
        parts.append(f"\n## {path}\n\n| In | Left out, or turned round | Noticed by |\n|---|---|---|\n")
        parts += [f"| `{one.function}` | {_code(one.what)} | {_by(journal.noticed(one))} |\n" for one in some]
    if REVIEWED:
        parts.append("\n## Reviewed\n\n| Mutant | Why no test can see it |\n|---|---|\n")
        parts += [f"| {_code(name)} | {why} |\n" for name, why in REVIEWED.items()]
    return "".join(parts)


def _code(text: str) -> str:
    short = text if len(text) <= 160 else f"{text[:157]}..."
    return f"`{short.replace('|', chr(92) + '|').replace('`', chr(39))}`"


def _by(test: str | None) -> str:
    if test is None:
        return "not asked"
    return "**nobody**" if test == NOBODY else f"`{test.removeprefix('tests/')}`"
