"""`python -m tests.reliability` enumerates every power cut and every fault: out/reliability.md and counts."""

import errno
import itertools
import json
import tempfile
import time
from pathlib import Path

from tests.support.agent_scenarios import agent_scenarios, pull_scenarios
from tests.support.crash import Judge, Scenario, distinct_states, enumerate_cuts, uncaught_mutants
from tests.support.cut_files import CutFiles
from tests.support.faults import ACTIONS, count_calls, try_fault
from tests.support.pushes import device_over
from tests.support.scenarios import scenarios

PAGE = Path(__file__).parents[1] / "out/reliability.md"
COUNTED = Path(__file__).with_name("power_cuts.json")  # states of each scenario: the fewest that its test accepts
NUMBERS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EINTR)

HEAD = """# What a power cut or a full disk can do to a device

Written by `python -m tests.reliability`. `tests/unit/device/test_power_cuts.py` fails if a change enumerates fewer
states than the last run, whose counts are in `tests/power_cuts.json`. The rows that begin with `agent:` are the real
client and the real agent over files whose power is cut, or the real pull of a release, a statement of its ring and a
word of who counts, from a registry in memory; the others are the same steps called one by one, so that many more states
can be tried. The agent also writes an audit log, of which a cut may take the last line. Where
something was killed at each step before, its process ended there, the machine ran on, and what is interrupted by the
cut is what came next.

The model: the content of a file is durable after its fsync, a change of a folder after the fsync of that folder. At a
cut any subset of the changes that are not durable may be on the disk, in their order; content that is not durable may
be old, empty, torn or new. That is more than a journaling file system allows itself. In every state:

- I0: what is current is a whole release with its engine, and so is its fallback; what has its name is whole,
- I1: recovery ends on a whole release,
- I2: a repeated push converges, and garbage collection leaves nothing temporary,
- I3: a second cut, inside recovery, is recovered from, and a repeated push converges then, too,
- I4: no release is current whose sequence is not counted; a step back is counted as used before it is current,
- I5: a verdict that was reported survives, and so do the serial of a statement and the version of who counts,
- I6: nothing unproven is current without a trial record,
- I7: what a pull remembers is whole and true, what it brought is stated, and by the latest word of who counts; the pull
  that follows ends on the release, or leaves alone what was left.
"""

_SECOND = "States after a second cut, inside recovery"


def _enumerated(all_scenarios: list[Scenario]) -> list[str]:
    memory: dict = {}
    rows = []
    lines = [
        "## Every cut (F-1, F-2, F-3)\n",
        f"| Interrupted | Steps / syncs | States after a cut | {_SECOND} | Violations |",
        "|---|---|---|---|---|",
    ]
    for one in all_scenarios:
        count = enumerate_cuts(one, memory=memory)
        lines.append(
            f"| {one.name} | {count.steps} / {count.syncs} | {count.states} | {count.second_states} | "
            f"{len(count.violations)} |"
        )
        rows.append(f" {json.dumps(one.name)}: [{count.states}, {count.second_states}]")
        print(lines[-1], flush=True)
    COUNTED.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    return lines


def _mutated(all_scenarios: list[Scenario]) -> list[str]:
    memory: dict = {}
    lines = [
        "\n## One sync left out at a time (F-4)\n",
        "Not counted: the syncs that find nothing to do here, because they are for what a killed process has left.\n",
        "| Interrupted | Syncs | Caught | Covered by a later sync of the same folder (reviewed) |",
        "|---|---|---|---|",
    ]
    for one in all_scenarios:
        # Minutes, for the same syncs as in the scenarios that they are made of.
        if one.name == "first push, unhealthy" or one.killed is not None or one.pulls is not None:
            continue
        _, files = distinct_states(one)
        uncaught = uncaught_mutants(one, memory=memory)
        follows = ", ".join(dict.fromkeys(map(_after_what, uncaught.values()))) or "none"
        busy = len(files.syncs) - len(files.idle)
        lines.append(f"| {one.name} | {busy} | {busy - len(uncaught)} | {len(uncaught)}: {follows} |")
        print(lines[-1], flush=True)
    return lines


def _after_what(sync: str) -> str:
    path, _, follows = sync.partition(" after ")
    plain = Path(path).name.removesuffix(".tmp").lstrip(".")
    return f"after {follows}" if follows and path.startswith("sync_dir") else f"of {plain}"


def _without_syncs(scenario: Scenario) -> list[str]:
    files = CutFiles(scenario.start)
    files.skips = None
    scenario.action(device_over(files), lambda: None)
    judge = Judge(scenario, converges=False)
    sample = list(itertools.islice(files.trees_after_cut(), 0, 400_000, 100))  # of many more
    broken = [list(judge.violations(tree, None)) for tree in sample]
    start = sum(any(one.startswith("I0: current") for one in found) for found in broken)
    some = sum(bool(found) for found in broken)
    return [
        "\n## All syncs left out\n",
        f"That the test can fail: {scenario.name}, {len(sample)} of the states after its end. In {some} of them",
        f"something does not hold; in {start} the device would start on a broken or missing release.",
    ]


def _faults() -> list[str]:
    lines = [
        "\n## The n-th call of the file system fails (F-5)\n",
        "Each call in turn, with ENOSPC, EIO, EROFS, EDQUOT and EINTR; once, and from then on. After it: a typed",
        "error, a whole release is current; after the cure a repeated push converges and leaves nothing temporary.\n",
        "| Interrupted | Calls | Faults tried | Violations |",
        "|---|---|---|---|",
    ]
    for name in ACTIONS:
        calls, tried, violations = count_calls(name), 0, 0
        for at, number, lasts in itertools.product(range(calls), NUMBERS, (False, True)):
            tried += 1
            violations += bool(try_fault(name, at=at, number=number, lasts=lasts))
        lines.append(f"| {name} | {calls} | {tried} | {violations} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure, and write the page."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        push, pull = Path(folder, "push"), Path(folder, "pull")
        for one in (push, pull):
            one.mkdir()
        _write([*scenarios(), *agent_scenarios(push), *pull_scenarios(pull)])
    print(f"{PAGE}: {time.monotonic() - begun:.0f} s")


def _write(every: list[Scenario]) -> None:
    lines = [HEAD, *_enumerated(every), *_mutated(every), *_without_syncs(every[0]), *_faults()]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
