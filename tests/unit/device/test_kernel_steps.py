"""Below the crash enumeration: what it takes for a sync is one that the kernel was asked for, in that order."""

import json
from pathlib import Path

import pytest

from tests.support.kernel_steps import kernel_steps, traced, why_not, without_repeats
from tests.support.told_story import STORIES

pytestmark = pytest.mark.slow_but(reason="further scenarios: the first row of each test is quick")

HERE = Path(__file__).parents[3]


@pytest.fixture(scope="module", autouse=True)
def _tracing():
    if why := why_not():
        pytest.skip(why)


def told_and_seen(story, folder, *without):
    """Return what the story says that it did, and what the kernel was asked for."""
    (folder / "disk/var/lib/edge-deploy").mkdir(parents=True)
    words = ("-m", "tests.support.told_story", story, str(folder), *without)
    done = traced(words, log=folder / "strace.log", cwd=HERE)
    assert done.returncode == 0, done.stderr
    told = without_repeats(tuple(step) for step in json.loads(done.stdout))
    return told, kernel_steps(folder / "strace.log", folder / "disk")


@pytest.mark.parametrize("story", STORIES)
def test_f4_every_durable_step_reaches_the_kernel_in_the_order_that_the_enumeration_counts(story, tmp_path):
    told, seen = told_and_seen(story, tmp_path)

    assert seen == told
    assert any(step[0] == "sync" for step in seen)


@pytest.mark.parametrize("without", ["files", "folders"])
@pytest.mark.parametrize("story", ["put", "push"])
def test_f4_a_sync_that_is_deleted_below_the_enumeration_is_noticed(story, without, tmp_path):
    told, seen = told_and_seen(story, tmp_path, without)

    assert seen != told
    assert [step for step in told if step[0] != "sync"] == [step for step in seen if step[0] != "sync"]


def test_f4_a_new_content_is_on_the_disk_before_its_name_and_its_name_before_anything_else(tmp_path):
    _, seen = told_and_seen("put", tmp_path)

    here = "var/lib/edge-deploy"
    assert seen == [
        ("write", f"{here}/.a.tmp"),
        ("sync", f"{here}/.a.tmp"),
        ("rename", f"{here}/.a.tmp", f"{here}/a"),
        ("sync", here),
    ]


@pytest.mark.promised(reason="power cuts")
def test_f4_what_was_received_is_synced_before_it_has_its_name(tmp_path):
    _, seen = told_and_seen("agent", tmp_path)

    synced, named = set(), []
    for step in seen:
        if step[0] == "write":
            synced.discard(step[1])
        elif step[0] == "sync":
            synced.add(step[1])
        elif step[0] == "rename" and "/store/" in step[2]:
            named.append(step[2])
            assert step[1] in synced, step
    assert len(named) >= 3
