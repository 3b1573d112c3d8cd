"""What a person reads while a pipeline runs; accounts are those of `tests.unit.runtime.serve.test_watchdog`."""

import dataclasses
import os

import pytest

from edge.cli.run_progress import RunProgress, is_watched
from edge.types import StreamState
from tests.unit.runtime.serve.test_watchdog import account


def at(elapsed_s, streams):
    report = account(turns=1, batches=1, streams=streams)
    return dataclasses.replace(report, times=dataclasses.replace(report.times, elapsed_s=elapsed_s))


def test_a_line_soon_then_every_ten_seconds_with_the_rate_since_the_last():
    said = []
    progress = RunProgress(said.append)
    up = StreamState.UP

    for elapsed_s, inferred in [(1, 10), (2, 30), (3, 45), (11.9, 170), (12, 180), (13, 195), (22, 180)]:
        progress.tick(at(elapsed_s, [(up, inferred, inferred, 0), (up, 0, 0, 0)]))

    assert said == [
        "2 s: 2 of 2 streams up; 30 frames inferred, 15.0 fps",
        "12 s: 2 of 2 streams up; 180 frames inferred, 15.0 fps",
        "22 s: 2 of 2 streams up; 180 frames inferred, 0.0 fps",
    ]


def test_streams_that_are_not_up_are_counted_by_their_state():
    said = []
    states = [StreamState.UP, StreamState.DOWN, StreamState.CONNECTING, StreamState.DOWN]

    RunProgress(said.append).tick(at(3, [(state, 0, 0, 0) for state in states]))

    assert said == ["3 s: 1 of 4 streams up, 1 connecting, 2 down; 0 frames inferred, 0.0 fps"]


@pytest.mark.parametrize(
    ("terminals", "has_messages", "expected"),
    [((1, 2), False, True), ((1, 2), True, False), ((2,), True, True), ((1,), False, False), ((), False, False)],
)
def test_only_a_person_who_reads_nothing_else_there_is_told(monkeypatch, terminals, has_messages, expected):
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor in terminals)

    assert is_watched(has_messages=has_messages) is expected
