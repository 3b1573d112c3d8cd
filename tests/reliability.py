"""`python -m tests.reliability` enumerates every power cut and every fault: out/reliability.md and counts."""

import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.page import tables
from tests.support.crash import Scenario, distinct_states, enumerate_cuts, uncaught_mutants
from tests.support.faults import ACTIONS, CODES, count_calls, try_fault
from tests.support.scenarios import agent_scenarios, pull_scenarios, scenarios

PAGE = Path(__file__).parents[1] / "out/reliability.md"
COUNTED = Path(__file__).with_name("power_cuts.json")  # states of each scenario: the fewest that its test accepts

HEAD = """# What a power cut or a full disk can do to a device

Written by `python -m tests.reliability`; the model and the invariants are those of `tests/support/cut_files.py` and
`tests/support/crash.py`. `tests/unit/device/test_power_cuts.py` fails if a change enumerates fewer states than the last
run, whose counts are in `tests/power_cuts.json`. The rows that begin with `agent:` are the real client and the real
agent over files whose power is cut, or the real pull from a registry in memory; the others are the same steps called
one by one, so that many more states can be tried. Where something was killed at each step before, its process ended
there, the machine ran on, and what is interrupted by the cut is what came next.
"""


def _enumerated(all_scenarios: list[Scenario]) -> Iterator[dict]:
    memory: dict = {}
    rows = []
    for one in all_scenarios:
        count = enumerate_cuts(one, memory=memory)
        rows.append(f" {json.dumps(one.name)}: [{count.states}, {count.second_states}]")
        yield {
            "interrupted": one.name,
            "steps": count.steps,
            "syncs": count.syncs,
            "states after a cut": count.states,
            "after a second cut, inside recovery": count.second_states,
            "violations": len(count.violations),
        }
    COUNTED.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def _mutated(all_scenarios: list[Scenario]) -> Iterator[dict]:
    """Leave one sync out at a time; those that find nothing to do are for what a killed process has left."""
    memory: dict = {}
    for one in all_scenarios:
        # Minutes, for the same syncs as in the scenarios that they are made of.
        if one.name == "first push, unhealthy" or one.killed is not None or one.pulls is not None:
            continue
        _, files = distinct_states(one)
        uncaught = uncaught_mutants(one, memory=memory)
        busy = len(files.syncs) - len(files.idle)
        covered = ", ".join(dict.fromkeys(uncaught.values())) or "none"
        yield {
            "interrupted": one.name,
            "syncs": busy,
            "caught": busy - len(uncaught),
            "covered by a later sync of the same folder": covered,
        }


def _faults() -> Iterator[dict]:
    for name in ACTIONS:
        calls, tried, violations = count_calls(name), 0, 0
        for at, number, lasts in itertools.product(range(calls), CODES, (False, True)):
            tried += 1
            violations += bool(try_fault(name, at=at, number=number, lasts=lasts))
        yield {"interrupted": name, "calls": calls, "faults": tried, "violations": violations}


def _told(rows: Iterator[dict]) -> list[dict]:
    found = []
    for row in rows:
        print(*row.values(), sep=", ", flush=True)
        found.append(row)
    return found


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
    found = {
        "Every cut (F-1, F-2, F-3)": _told(_enumerated(every)),
        "One sync left out at a time (F-4)": _told(_mutated(every)),
        "Each call of the file system fails, once and from then on (F-5)": _told(_faults()),
    }
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join([HEAD.rstrip(), *tables(found), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
