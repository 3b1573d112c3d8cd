"""A runtime that wants to stay: whatever it leaves where the agent looks for its health, it is replaced."""

import json
import os
import threading
import time
from contextlib import closing

import pytest

from edge.deadline import Deadline
from edge.delivery.link import Link
from edge.device.health import encode_health, read_health
from edge.wire.peer import Nothing
from edge.wire.verbs import STATUS
from tests.support.odd_files import odd_file

pytestmark = pytest.mark.slow_but(reason="further pushes over real agents: the first row of each test is quick")

DEADLINE_S = 60.0  # a push to this device takes one second, and five more where a baseline is waited for
NOW = "now"  # stands for CLOCK_BOOTTIME when the file is written

LIES = {
    "NaN": {"infer_p95_ms": float("nan"), "age_p95_ms": float("nan")},
    "a number beyond all floats as its time": {"at_boottime_ns": 10**400},
    "streams that are a list": {"streams": []},
}


@pytest.fixture
def compromised(device):
    device.push(device.bundle("one"))
    return device


def _push(device):
    return device.push(device.bundle("two", sequence=2), deadline_s=DEADLINE_S)


# tests/unit/test_reading.py reads every odd file, tests/unit/device/test_health.py every wrong value.
@pytest.mark.parametrize("what", ["a FIFO", "a leased file", "a growing file"])
def test_a_push_replaces_a_runtime_whose_health_file_is(what, compromised):
    with odd_file(what, compromised.layout.health):
        outcome = _push(compromised)
    assert outcome.result == "committed", outcome


@pytest.mark.parametrize("lie", LIES)
def test_a_push_replaces_a_runtime_whose_health_file_says(lie, compromised):
    path, stop = compromised.layout.health, threading.Event()
    values = json.loads(encode_health(read_health(path)))

    def lie_on() -> None:
        while not stop.wait(0.05):
            told = {**values, "at_boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME), **LIES[lie]}
            path.with_name("told").write_text(json.dumps(told))
            os.replace(path.with_name("told"), path)

    liar = threading.Thread(target=lie_on)
    liar.start()
    try:
        outcome = _push(compromised)
    finally:
        stop.set()
        liar.join()
    assert outcome.result == "committed", outcome
    baseline = compromised.device.state().baseline
    assert "NaN" not in json.dumps(dict(baseline))


def test_status_answers_though_the_health_file_is_a_fifo(compromised):
    link = Link(compromised.connect(), threading.Event(), Deadline.after(DEADLINE_S))
    with closing(link), odd_file("a FIFO", compromised.layout.health):
        assert link.ask(STATUS, Nothing()).health is None
