"""The demo as a user runs it, and how it fails."""

import json
import subprocess
import sys

import pytest

from edge.demo.show import find_problems
from tests.support.mosquitto import Mosquitto

pytestmark = pytest.mark.integration


def demo(*options):
    command = [sys.executable, "-m", "edge.cli.edge_deploy", "demo", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_everything_that_is_inferred_arrives_and_objects_are_found(tmp_path):
    done = demo("--cameras", 2, "--seconds", 4, "--keep", tmp_path, "--json")

    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["received"] == content["sent"] == content["run"]["inferred"] > 50
    assert content["run"]["balanced"]
    assert content["precision"] > 0.9
    assert content["recall"] > 0.7
    assert len(list((tmp_path / "images").iterdir())) == len(list((tmp_path / "labels").iterdir())) > 50


def test_a_broker_of_ones_own(tmp_path):
    with Mosquitto(tmp_path / "broker") as broker:
        done = demo("--cameras", 1, "--seconds", 2, "--broker", f"127.0.0.1:{broker.port}")

    assert done.returncode == 0, done.stderr
    assert "sent = received" in done.stdout


def test_without_a_broker_it_fails_and_says_so():
    done = demo("--cameras", 1, "--seconds", 1, "--broker", "127.0.0.1:1")

    assert done.returncode == 3
    assert "error: the subscriber did not start" in done.stderr
    assert "Traceback" not in done.stderr


class Run:
    """What the demo looks at in the account of a run."""

    def __init__(self, *, inferred=10, unaccounted=0, is_balanced=True):
        self.inferred = inferred
        self.is_balanced = is_balanced
        self.published = {"accepted": inferred}
        self.streams = [type("Stream", (), {"stream": "camera-1", "unaccounted": unaccounted})]


@pytest.mark.parametrize(
    ("run", "received", "expected"),
    [
        (Run(), 10, None),
        (Run(), 0, "the subscriber received nothing"),
        (Run(), 9, "10 frames were published, 9 messages were received"),
        (Run(unaccounted=2), 10, "camera-1: 2 frames are unaccounted for"),
        (Run(is_balanced=False), 10, "the message counts do not balance"),
    ],
)
def test_what_does_not_balance_is_a_problem(run, received, expected):
    problems = find_problems(run, received)

    assert (problems == ()) == (expected is None)
    assert expected is None or any(expected in problem for problem in problems)
