"""What each test file costs, the half of it that `make test` runs and the rest: so the dearest begin first.

`--record=FILE` writes the seconds of every test of a run; `python -m tests.costs FILE...` sums them up by file into
tests/costs.json, which `make test-all` does: of those alone that are dear, as the others move the end of a run by less.
A bound on seconds is one of the machine that recorded them: on a slower machine, it is as much longer as the files of
the run took.
"""

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

COSTS = Path(__file__).with_name("costs.json")
MOST_S = {"quick": 5.0, "promised": 120.0}  # of one test
_DEAR_S = 5.0  # of a file


def known() -> dict[str, dict[str, float]]:
    """Return the seconds of each dear file, of its quick tests and of the others."""
    return json.loads(COSTS.read_text(encoding="utf-8")) if COSTS.exists() else {"quick": {}, "slow": {}}


def by_cost(kinds: Mapping[str, set[str]]) -> dict[str, float]:
    """Return what the files that a run has will take, each with the kinds of its tests that were selected."""
    costs = known()
    return {file: sum(costs[kind].get(file, 0.0) for kind in some) for file, some in kinds.items()}


def summed(seconds: Mapping[str, float]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for test, took_s in seconds.items():
        found[test.split("::")[0]] += took_s
    return dict(found)


def slowness(run: Mapping[str, Mapping[str, float]], recorded: Mapping[str, float]) -> float:
    """Return how many times longer this machine took than the one that recorded the costs, 1.0 at least.

    It is the median over files: a file that a change made dearer hardly moves it.
    """
    took_s = summed({**run["quick"], **run["promised"]})
    ratios = [took_s[file] / known_s for file, known_s in recorded.items() if file in took_s]
    return max(1.0, statistics.median(ratios)) if ratios else 1.0


def too_dear(run: Mapping[str, Mapping[str, float]], slowness: float = 1.0) -> dict[str, float]:
    """Return the tests that took more than one of their kind may on a machine of this slowness."""
    return {
        test: took_s
        for kind, most_s in MOST_S.items()
        for test, took_s in run[kind].items()
        if took_s > most_s * slowness
    }


def write(runs: Iterable[Path]) -> None:
    costs: dict[str, dict[str, float]] = {"quick": {}, "slow": {}}
    for run in runs:
        found = json.loads(run.read_text(encoding="utf-8"))
        for kind, seconds in (("quick", {**found["quick"], **found["promised"]}), ("slow", found["slow"])):
            by_file = summed(seconds).items()
            costs[kind].update({file: round(took_s, 1) for file, took_s in by_file if took_s >= _DEAR_S})
    COSTS.write_text(json.dumps(costs, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(map(Path, sys.argv[1:]))
