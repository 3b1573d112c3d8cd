"""What a person sees of the answers of several targets, some of which give none."""

import pytest

from edge.delivery.outcome import DONE, Outcome
from edge.deploy.fleet.rollout import FleetResult
from edge.wire.verbs import LogsAnswer, LookReport
from tests.support.answers import status
from tests.support.command_line import command

INVENTORY = "".join(f'[[target]]\nname = "{name}"\nhost = "{name}"\n' for name in ("f-01", "f-02"))
AWAY = {"result": "unreachable", "exit_code": 3, "code": "transfer.ssh.unreachable"}


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return what a command prints where f-01 answers something and f-02 is away."""

    def run_fleet(targets, one, **how):
        one.answers["f-01"] = answers.pop()
        found = Outcome(target="f-01", release=None, result="unchanged", exit_code=DONE)
        away = Outcome(target="f-02", release=None, problem="f-02: ssh: no route", **AWAY)
        return FleetResult(outcomes=(found, away))

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("edge.cli.fleet.run_fleet", run_fleet)
    (tmp_path / "targets.toml").write_text(INVENTORY)
    answers = []

    def told(answer, *words):
        answers.append(answer)
        return command("edge-deploy", *words, "--targets", tmp_path / "targets.toml", expected=11)

    return told


def test_a_target_without_an_answer_is_named_once_and_only_where_its_error_is(told):
    done = told(LogsAnswer(lines=("a line",), note=""), "logs", "all")

    assert done.stdout.splitlines() == ["f-01:", "a line"]
    assert done.stderr.splitlines() == ["f-02: ssh: no route"]


def test_a_look_that_failed_is_told_apart_from_the_last_one_that_did_not(told):
    failed = {"release": None, "result": "failed", "code": "registry.tls", "problem": "the certificate has expired"}
    look = LookReport(looked_at="2026-11-25T17:37:06Z", age_s=285, **failed)

    lines = told(status(look=look), "status", "all").stdout.splitlines()

    assert [line for line in lines if "17:37:06" in line] == ["looked    2026-11-25T17:37:06Z, 285 s ago"]
    assert [line.split()[0] for line in lines if "registry.tls" in line] == ["pulled"]
