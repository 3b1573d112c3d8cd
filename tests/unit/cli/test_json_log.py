"""Log lines as JSON: ids of the catalogue, fields by name, one line whatever is said, repeats counted."""

import json
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.cli.commands.run import JsonFormatter, Repeats


def record(text, *arguments, level=logging.WARNING, name="edge.media.camera", error=None):
    info = (type(error), error, None) if error is not None else None
    return logging.LogRecord(name, level, __file__, 1, text, arguments, info)


def line_of(*arguments, **named):
    text = JsonFormatter().format(record(*arguments, **named))
    assert "\n" not in text
    return json.loads(text)


@pytest.mark.parametrize(
    ("said", "event", "fields"),
    [
        (("stream failed stream=%s reason=%s", "east", "gone"), "stream-failed", {"stream": "east", "reason": "gone"}),
        (
            ("stream %s stream=%s reconnects=%d reason=%s", "down", "east", 3, "no route"),
            "stream-state",
            {"detail": "down", "stream": "east", "reconnects": 3, "reason": "no route"},
        ),
        (("device throttled reason=%s", "heat"), "device-throttled", {"reason": "heat"}),
        (("tensorrt: %s", "hello"), "tensorrt-says", {"detail": "hello"}),
        (("all streams have ended",), "streams-all-ended", {}),
        (("something that no catalogue has x=%s", 1), "other", {"x": 1}),
    ],
)
def test_a_line_has_its_event_and_its_fields(said, event, fields):
    line = line_of(*said)
    assert (line.pop("event"), line.pop("level")) == (event, "warning")
    assert line.pop("ts").endswith("Z")
    line.pop("text")
    assert line == fields


def test_a_line_of_a_library_is_no_event_of_ours():
    assert line_of("stream failed stream=%s reason=%s", "a", "b", name="paho")["event"] == "other"


def test_an_error_brings_its_traceback_in_the_same_line():
    assert "ValueError: two\nlines" in line_of("http server failed", error=ValueError("two\nlines"))["traceback"]


@given(st.text(), st.text())
def test_whatever_is_said_is_one_line_without_what_moves_a_cursor(stream, reason):
    line = line_of("stream failed stream=%s reason=%s", stream, reason)
    assert line["stream"].isprintable()
    assert line["text"].isprintable()


def test_equal_lines_are_left_out_and_counted_by_stream():
    now_s = 0.0
    repeats = Repeats(lambda: now_s)
    text = "stream failed stream=%s reason=%s"
    assert [repeats.filter(record(text, "east", "gone")) for _ in range(20)] == [True] * 5 + [False] * 15
    assert repeats.filter(record(text, "west", "gone"))
    assert repeats.filter(record("device throttled reason=%s", "heat"))
    other = record(text, "east", "refused")
    assert repeats.filter(other)
    assert json.loads(JsonFormatter().format(other))["repeated"] == 15
    now_s = 61.0
    again = record(text, "east", "refused")
    assert repeats.filter(again)
    assert "repeated" not in json.loads(JsonFormatter().format(again))


def test_equal_lines_are_said_again_after_a_minute():
    now_s = 0.0
    repeats = Repeats(lambda: now_s)
    for _ in range(7):
        repeats.filter(record("device throttled reason=%s", "heat"))
    now_s = 60.0
    again = record("device throttled reason=%s", "heat")
    assert repeats.filter(again)
    assert json.loads(JsonFormatter().format(again))["repeated"] == 2


def test_a_line_that_says_something_new_is_never_left_out():
    repeats = Repeats()
    text = "stream %s stream=%s reconnects=%d reason=%s"
    said = [repeats.filter(record(text, ("down", "up")[n % 2], "east", n // 2, "")) for n in range(20)]
    said += [repeats.filter(record("pipeline not reloaded reason=%s", f"typo {n}")) for n in range(20)]
    said += [repeats.filter(record(("no longer overloaded", "device throttled")[n % 2])) for n in range(20)]
    assert all(said)


def test_numbers_are_numbers_and_counts_by_name_an_object():
    line = line_of(
        "engine measured batch_ms=%.1f rows=%d fps=%s dropped=%s", np.float32(9.5), np.int64(2), float("nan"), {"x": 3}
    )
    assert (line["batch_ms"], line["rows"], line["fps"], line["dropped"]) == (9.5, 2, "nan", {"x": 3})
