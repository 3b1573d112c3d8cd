"""A deadline is a moment that comes once."""

import time

from edge.deadline import NEVER, Deadline


def test_a_deadline_has_time_left_and_then_none(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    deadline = Deadline.after(2.5)
    assert (deadline.left_s, deadline.is_over) == (2.5, False)
    now[0] = 102.5
    assert (deadline.left_s, deadline.is_over) == (0.0, True)
    now[0] = 200.0
    assert (deadline.left_s, deadline.is_over) == (0.0, True)


def test_never_is_never_over():
    assert not NEVER.is_over
    assert NEVER.left_s == float("inf")
