"""The journal of a rollout survives what happens to files, and belongs to one rollout at a time."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from edge.delivery.outcome import Outcome
from edge.deploy.fleet.journal import Journal, journal_path
from edge.errors import DeployError
from tests.support.fleet import Running, ScriptedPush, targets


def outcome(target, *, is_done=True):
    if is_done:
        return Outcome(target=target.name, release="r", result="committed", exit_code=0)
    return Outcome(target=target.name, release="r", result="rolled-back", exit_code=8, code="trial.frames.none")


def noted(path, begun, *outcomes, is_resumed=False):
    """Write a rollout's journal: the targets that it begins with, and what came of some."""
    with Journal(path) as journal:
        journal.begin(begun, is_resumed=is_resumed)
        for one in outcomes:
            journal.note(next(target for target in begun if target.name == one.target), one)


def done_of(path, *targets):
    with Journal(path) as journal:
        return [journal.is_done(target) for target in targets]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "rollouts" / "r-main.jsonl"


def test_what_was_done_is_known_again_and_failed_after_it_or_of_another_host_is_not(path):
    one, two, three, four = targets(4)
    with Journal(path) as journal:
        assert not journal.has_begun
    noted(path, [one, two, three, four], *(outcome(each) for each in (one, three, four)), outcome(three, is_done=False))

    with Journal(path) as journal:
        assert journal.has_begun
    assert done_of(path, one, two, three, replace(four, host="elsewhere")) == [True, False, False, False]


def test_each_line_is_json_with_its_time(path):
    (one,) = targets(1)
    noted(path, [one], outcome(one, is_done=False))

    begin, result = [json.loads(line) for line in path.read_text().split("\n") if line]
    assert begin["event"] == "begin"
    assert begin["targets"] == ["d-00"]
    assert (result["target"], result["result"], result["code"], result["exit_code"]) == (
        "d-00",
        "rolled-back",
        "trial.frames.none",
        8,
    )
    assert result["at"].endswith("+00:00")


@pytest.mark.parametrize("torn_bytes", [1, 2, 20, 60])
def test_a_torn_last_line_costs_its_target_alone(path, torn_bytes):
    one, two, three = targets(3)
    noted(path, [one, two, three], outcome(one), outcome(two))
    os.truncate(path, path.stat().st_size - 1 - torn_bytes)
    assert done_of(path, one, two) == [True, False]

    noted(path, [two, three], outcome(three), is_resumed=True)
    assert done_of(path, one, two, three) == [True, False, True]


@pytest.mark.parametrize(
    "line", [b"[]", b"{}", b'"x"', b"\xff\xfe", b'{"event":"result"}', b"[" * 100_000, b"\x00" * 64]
)
def test_a_line_that_means_nothing_is_passed_over(path, line):
    (one,) = targets(1)
    noted(path, [one], outcome(one))
    with path.open("ab") as file:
        file.write(line)

    assert done_of(path, one) == [True]


def test_a_second_rollout_of_the_release_is_refused_and_told_of_the_first(path):
    with Journal(path) as journal:
        journal.begin(targets(1), is_resumed=False)
        with pytest.raises(DeployError, match=f"process {os.getpid()} on ") as caught:
            Journal(path)

    assert caught.value.code == "lock.rollout"
    assert caught.value.exit_code == 5


def test_it_is_free_when_its_process_was_killed(path):
    script = f"""
import os, signal
from pathlib import Path
from edge.deploy.fleet.journal import Journal
journal = Journal(Path({str(path)!r}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script], check=False, timeout=30)

    assert path.exists()
    with Journal(path) as journal:
        assert not journal.has_begun


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "state").write_text("a file")

    with pytest.raises(DeployError, match="XDG_STATE_HOME") as caught:
        Journal(tmp_path / "state" / "r.jsonl")

    assert caught.value.code == "request.journal"


def test_a_disk_that_fills_up_ends_the_rollout_and_hides_nothing(path):
    class FullAfter(Journal):
        left = 1

        def note(self, target, outcome):
            if not self.left:
                raise DeployError("request.journal", "no space left")
            self.left -= 1
            super().note(target, outcome)

    push = ScriptedPush()
    with FullAfter(path) as journal:
        running = Running(targets(4), push, max_parallel=1, journal=journal)
        result = running.join()

    assert push.begun == ["d-00", "d-01"]
    assert [one.result for one in result.outcomes] == ["committed", "committed", "refused", "refused"]
    assert {one.code for one in result.outcomes[2:]} == {"request.journal"}


def test_where_it_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert journal_path("3f9a", "main") == tmp_path / "edge-deploy" / "rollouts" / "3f9a-main.jsonl"

    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # the specification: to be ignored
    monkeypatch.setenv("HOME", str(tmp_path))
    assert journal_path("3f9a", "main") == tmp_path / ".local/state/edge-deploy/rollouts/3f9a-main.jsonl"


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 200, "a\n"])
def test_names_that_would_leave_the_folder_are_refused(name):
    with pytest.raises(ValueError, match="is no name"):
        journal_path(name, "main")


@pytest.mark.parametrize("torn_bytes", [0, 5])
def test_a_new_rollout_begins_anew_also_after_a_torn_line(path, torn_bytes):
    one, two = targets(2)
    noted(path, [one, two], outcome(one), outcome(two))
    os.truncate(path, path.stat().st_size - torn_bytes)
    noted(path, [one, two])

    assert done_of(path, one) == [False]
