"""What the last `make test` took, test by test, and what it fetched (docs/adr/0022)."""

import json
import re
from pathlib import Path

import pytest

from tests import costs
from tests.pace import Pace, pace_of

CACHE = Path(__file__).parents[1] / ".cache"
MOST_BYTES = 397_000_000  # of 500 MB


def test_make_names_the_file_to_record_in_the_word_of_the_option():
    """As a word of its own it is a path of tests once it is there, and then pytest does not read tests/conftest.py."""
    makefile = (CACHE.parent / "Makefile").read_text(encoding="utf-8")

    assert re.findall(r"--record(.\S+)", makefile) == ["=.cache/quick.json", "=.cache/rest.json"]


@pytest.mark.slow(reason="reads what make test has recorded")
def test_a_quick_test_takes_five_seconds_at_most():
    if not (CACHE / "quick.json").exists():
        pytest.skip("nothing is recorded; run: make test")
    run = json.loads((CACHE / "quick.json").read_text(encoding="utf-8"))

    slowness = costs.slowness(run, costs.known()["quick"])
    assert costs.too_dear(run, slowness) == {}, (
        f"on a machine {slowness:.2f} times as slow: mark them slow, or promised, or make them quicker"
    )


def test_what_is_promised_may_take_two_minutes_and_no_more():
    run = {"quick": {"a": 5.0, "b": 5.1}, "promised": {"c": 119.0, "d": 121.0}, "slow": {"e": 999.0}}

    assert costs.too_dear(run) == {"b": 5.1, "d": 121.0}


def test_a_machine_half_as_fast_may_take_twice_as_long_and_one_dear_file_makes_no_machine_slow():
    recorded = {f"tests/{name}.py": 2.0 for name in "abc"}
    slow = {"quick": {f"tests/{name}.py::{row}": 2.0 for name in "abc" for row in "12"}, "promised": {}}
    dear = {"quick": {"tests/a.py::1": 2.0, "tests/b.py::1": 2.0, "tests/c.py::1": 9.0}, "promised": {}}
    fast = {"quick": {"tests/a.py::1": 1.0, "tests/sleepy.py::1": 9.0}, "promised": {}}

    assert [costs.slowness(run, recorded) for run in (slow, dear, fast)] == [2.0, 1.0, 1.0]
    assert costs.too_dear({"quick": {"d": 9.9, "e": 10.1}, "promised": {}}, 2.0) == {"e": 10.1}


def test_the_wheels_of_make_test_leave_a_hundred_megabytes_for_what_debian_gives():
    """How many of Debian's packages are missing is the machine's: 103 MB beside Python, 278 MB on a bare one."""
    if not (CACHE / "fetched").exists():
        pytest.skip("nothing is recorded: .ci/setup was not run here")
    fetched = [line.split() for line in (CACHE / "fetched").read_text().splitlines()]
    bytes_of = {name: int(size) for stage, size, name in fetched if stage != "rest" and ".whl" in name}

    assert sum(bytes_of.values()) <= MOST_BYTES, sorted(bytes_of.items(), key=lambda one: -one[1])[:20]


def stat(running, *, busy, stolen):
    return f"cpu  {busy} 0 0 999 0 0 0 {stolen} 0 0\ncpu0 1 2 3\nprocs_running {running}\n"


def test_a_process_gets_on_at_its_share_of_the_cores():
    def pace(running, *, busy=100, stolen=0):
        return pace_of(stat(1, busy=0, stolen=0), stat(running, busy=busy, stolen=stolen), cores=2)

    assert [pace(running) for running in (1, 2, 3, 5, 9)] == [1.0, 1.0, 1.0, 0.5, 0.25]  # one of them reads this
    assert pace(1, busy=30, stolen=10) == 0.75


def test_between_two_times_lies_what_the_paces_between_them_make_of_it():
    pace = Pace((100.0, 1.0), (110.0, 0.5), (120.0, 0.25))

    assert pace.between(100.0, 120.0) == 7.5
    assert pace.between(104.0, 112.0) == 3.5
    assert pace.between(118.0, 124.0) == 1.5  # as it was last seen
