"""The end of the journal, read of a command that may say too much, too little, or go on for ever."""

import threading
import time
import tracemalloc

import pytest

from edge.runtime.agent import watch
from edge.runtime.agent.watch import logs
from edge.wire.verbs import LogsRequest
from tests.support.wait import wait_until

FOR_EVER_S = 40  # of a command that nobody ends
SOON_S = 30.0


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """What stands in for journalctl: a shell script."""

    def of(script):
        path = tmp_path / "journalctl"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(watch, "_JOURNAL", str(path))

    return of


def told(session):
    began = time.monotonic()
    answer = logs(session, LogsRequest(lines=5))
    assert time.monotonic() - began < SOON_S, "it was waited for to its end"
    return answer


def timers():
    return [one for one in threading.enumerate() if isinstance(one, threading.Timer)]


def test_a_journal_that_says_no_more_and_does_not_end_is_given_up(session, journal, monkeypatch):
    monkeypatch.setattr(watch, "_JOURNAL_TIMEOUT_S", 0.3)
    journal(f"echo a line\nexec sleep {FOR_EVER_S}")

    assert told(session).lines == ("a line",)


def test_one_without_end_is_read_to_a_deadline_and_not_gathered(session, journal, monkeypatch):
    monkeypatch.setattr(watch, "_JOURNAL_TIMEOUT_S", 0.5)
    journal("exec yes a-line-of-a-runtime")
    tracemalloc.start()
    try:
        answer = told(session)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert answer.lines == ("a-line-of-a-runtime",) * 5
    assert peak_bytes < 64 << 20


def test_one_that_has_closed_its_output_is_not_waited_for(session, journal):
    journal(f"echo a line\necho a complaint >&2\nexec >&-\nexec sleep {FOR_EVER_S}")

    answer = told(session)

    assert (answer.lines, answer.note) == (("a line",), "a complaint")


def test_what_would_have_given_it_up_does_not_keep_the_agent_from_its_end(session, journal, monkeypatch):
    monkeypatch.setattr(watch, "_JOURNAL_TIMEOUT_S", float(FOR_EVER_S))
    journal("echo a line")

    assert told(session).lines == ("a line",)
    wait_until(lambda: not timers(), what="no timer is left")
