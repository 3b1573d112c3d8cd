"""What is told of a phase of a push."""

import pytest

from edge.delivery.outcome import BEGIN, END, PROGRESS, Report


def test_the_end_of_a_phase_says_that_all_of_it_is_done_whatever_was_passed_over_on_the_way():
    said = []
    report = Report("gate-01", said.append)

    with report.phase("upload", total=8233):
        report.far("upload", 428, 8233)

    assert [(one.event, one.bytes, one.total) for one in said] == [
        (BEGIN, None, 8233),
        (PROGRESS, 428, 8233),
        (END, 8233, 8233),
    ]


def test_a_phase_that_fails_has_no_end():
    said = []

    with pytest.raises(ValueError, match="no"), Report("gate-01", said.append).phase("build"):
        raise ValueError("no")

    assert [one.event for one in said] == [BEGIN]
