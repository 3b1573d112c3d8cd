"""F-1 to F-4: what a power cut can leave at any step, judged state by state; see tests/support/crash.py."""

import itertools
import json
import os
from pathlib import Path

import pytest

from edge.bundle.sign import run_ssh_keygen
from tests.support.crash import Judge, distinct_states, enumerate_cuts, is_caught, uncaught_mutants
from tests.support.cut_files import CutFiles
from tests.support.pushes import device_over
from tests.support.scenarios import AGENT_SCENARIOS, NEW, PULL_SCENARIOS, agent_scenarios, pull_scenarios, scenarios

SCENARIOS = {scenario.name: scenario for scenario in scenarios()}
EVERY = [*SCENARIOS, *AGENT_SCENARIOS, *PULL_SCENARIOS]
HAS_TIME = bool(os.environ.get("EDGE_LONG_TESTS"))
# Minutes: the real agent or the real pull killed at each step, whose steps alone are among the others; a first pull.
SLOW = {AGENT_SCENARIOS[-1], *PULL_SCENARIOS[3:5]}
IN_TIME = [name for name in EVERY if HAS_TIME or name not in SLOW]
COUNTED = json.loads((Path(__file__).parents[2] / "power_cuts.json").read_text(encoding="utf-8"))
MEMORY: dict = {}
MUTANT_MEMORY: dict = {}

# Minutes long, and nothing that the others do not have; `python -m tests.reliability` runs them all.
LONG = {"push, unhealthy", "first push, healthy", "first push, unhealthy", *AGENT_SCENARIOS[:3], AGENT_SCENARIOS[4]}
# Where something was killed before, the syncs of what is repeated are those of a scenario of its own.
# A pull makes those of a push. Its record may be lost by a cut, not torn: the next pull then finds what serves.
ALONE = [name for name in EVERY if "killed at each step" not in name and name not in PULL_SCENARIOS]
QUICK_MUTANTS = [name for name in ALONE if name not in LONG or HAS_TIME]

# Up to some hundred states each; the others have thousands, and are `slow`.
SMALL = {
    name
    for name in SCENARIOS
    if name != "push, healthy"
    and not any(word in name for word in ("first", "unhealthy", "after garbage", "killed at"))
} | {
    "agent: rollback",
    PULL_SCENARIOS[0],
    PULL_SCENARIOS[5],
    *(f"{what}, killed at each step before" for what in ("recovery", "rollback")),
}


def rows(names):
    many = pytest.mark.slow(reason="thousands of states")
    return [name if name in SMALL else pytest.param(name, marks=many) for name in names]


# A sync of a folder that may be left out, because the next sync of the same folder comes before anything relies on it.
# Reviewed one by one; key and value are what the two follow.
REVIEWED = {
    "counters.json": {"state.json", "build-result.json", "build-request.json"},  # stage, arm: before the switch moves
    "current": {"state.json"},  # the trial record tells either place of the switch; a verdict comes after
    "state.json": {"bad.json"},  # a refusal that is lost is followed by a second trial, and by the same verdict
    "bad.json": {"current"},  # on trial: the refusal is on the disk, so recovery marks it again
    "incoming": {"store"},  # a new device: folders that are empty
    "store": {"releases"},
    "releases": {"engines", "counters.json"},
    "engines": {"counters.json", "build-result.json"},
}
# In one scenario only: the state was damaged before, and a recovery that is repeated puts the same release on trial.
REVIEWED_HERE = {("recovery, newest valid release", "state.json"): {"current"}}
# What the agent writes besides: a power cut may take the last line of the audit log, and a build that was asked for is
# asked for again by the push that is repeated.
LOSABLE = ("audit.jsonl", "audit-requests.jsonl", "build-request.json", "build-result.json")


def remembering():
    """Return `run_ssh_keygen` that is asked each question once, by its words and by what is in the files they name."""
    answers = {}

    def ask(*words, content=b"", **options):
        files = {word: Path(word).read_bytes() for word in words if word.startswith("/")}
        has_times = any(b"valid-" in found for found in files.values())
        asked = [files.get(word, word) for word in words if has_times or not word.startswith("-Overify-time=")]
        question = (*asked, content)
        if question not in answers:
            answers[question] = run_ssh_keygen(*words, content=content, **options)
        return answers[question]

    return ask


@pytest.fixture(scope="module", autouse=True)
def _ssh_keygen_is_asked_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edge.bundle.sign.run_ssh_keygen", remembering())
        yield


@pytest.fixture(scope="module")
def scenario_of(tmp_path_factory):
    of_the_agent = agent_scenarios(tmp_path_factory.mktemp("agent"))
    of_the_agent += pull_scenarios(tmp_path_factory.mktemp("pull"))
    return {**SCENARIOS, **{scenario.name: scenario for scenario in of_the_agent}}


@pytest.mark.parametrize("name", rows(IN_TIME))
def test_f1_f2_f3_every_state_after_a_cut_and_after_a_second_one_is_good(name, scenario_of):
    count = enumerate_cuts(scenario_of[name], memory=MEMORY)
    print(f"{name}: {count.steps} steps, {count.states} states, {count.second_states} after a second cut")
    assert count.violations == []
    states, second_states = COUNTED[name]
    assert count.states >= states, "fewer than tests/power_cuts.json says"
    assert count.second_states >= second_states, "fewer than tests/power_cuts.json says"


@pytest.mark.parametrize("name", rows(QUICK_MUTANTS))
@pytest.mark.promised(reason="power cuts")
def test_f4_a_sync_that_is_left_out_is_caught_or_reviewed(name, scenario_of):
    scenario = scenario_of[name]
    _, files = distinct_states(scenario)
    for number, what in uncaught_mutants(scenario, memory=MUTANT_MEMORY).items():
        if is_losable(what):
            continue
        folder, _, follows = what.removeprefix("sync_dir ").partition(" after ")
        settles = {one for one in files.idle if files.syncs[one] == f"sync_dir {folder}"}
        if settles and is_caught(scenario, {number, *settles}, memory=MUTANT_MEMORY):
            continue  # whoever relies on the name syncs its folder once more, for one who was killed
        later = [one for one in files.syncs[number + 1 :] if one.startswith(f"sync_dir {folder} after ")]
        assert later, f"{what}: left out unnoticed, and nothing later covers it"
        covers = later[0].partition(" after ")[2]
        # Two folders of the store, each before anything links there; else what was reviewed.
        is_fanned = len(follows) == len(covers) == 2
        reviewed = REVIEWED.get(follows, set()) | REVIEWED_HERE.get((name, follows), set())
        assert is_fanned or covers in reviewed, f"{what}, then {later[0]}: not reviewed"


def is_losable(what):
    path, _, follows = what.partition(" after ")
    if path == "sync_dir /var/lib/edge-deploy" and not follows:  # a new file that is appended to: the audit log
        return True
    return Path(path).name in {*LOSABLE, *(f".{name}.tmp" for name in LOSABLE)} or follows in LOSABLE


def test_f4_leaving_out_a_sync_and_the_one_that_covers_it_is_caught():
    scenario = SCENARIOS["rollback, asked for"]
    _, files = distinct_states(scenario)
    busy = {number: what for number, what in enumerate(files.syncs) if number not in files.idle}
    assert [what.partition(" after ")[2] for what in busy.values()] == ["current", ".state.json.tmp", "state.json"]
    current, _, state = busy
    assert not is_caught(scenario, {current})
    assert is_caught(scenario, {current, state})


@pytest.mark.slow(reason="hundreds of thousands of states")
def test_f4_without_any_sync_a_device_would_start_on_a_broken_release():
    scenario = SCENARIOS["push, healthy"]
    files = CutFiles(scenario.start)
    files.skips = None
    scenario.action(device_over(files), lambda: None)
    judge = Judge(scenario, converges=False)
    some = itertools.islice(files.trees_after_cut(), 0, 20_000, 50)  # of hundreds of thousands
    found = {one for tree in some for one in judge.violations(tree, None)}
    assert f"I0: current is {NEW.name}, which is not whole" in found
