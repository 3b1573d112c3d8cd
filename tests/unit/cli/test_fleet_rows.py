"""What a row knows, and which rows a small screen shows."""

from datetime import datetime, timedelta, timezone

import pytest

from edge.cli.fleet_view import FleetRow, FleetRows, printable, size_text
from edge.delivery.outcome import BEGIN, END, LAST_PHASE, PROGRESS, UPLOAD, Event

START = datetime(2026, 11, 20, 10, 0, tzinfo=timezone.utc)
MIB = 1024 * 1024


def event(name, *, at_s=0.0, target="d-00", phase=UPLOAD, **values):
    return Event(ts=START + timedelta(seconds=at_s), target=target, phase=phase, event=name, **values)


def last(target, result="committed", code=None):
    return event(result, target=target, phase=LAST_PHASE, code=code, hint="why" if code else None)


def row_of(*events):
    row = FleetRow(target="d-00", began_at=START)
    for one in events:
        row.take(one)
    return row


def test_a_resumed_upload_counts_its_speed_from_where_it_began():
    row = row_of(
        event(BEGIN),
        event(PROGRESS, at_s=1, bytes=60 * MIB, total=100 * MIB),
        event(PROGRESS, at_s=3, bytes=70 * MIB, total=100 * MIB),
    )

    assert row.percent == 70
    assert row.mib_per_s == pytest.approx(5)
    assert row.eta_s == pytest.approx(6)


def test_what_is_not_known_is_not_told():
    row = row_of(event(BEGIN), event(PROGRESS, at_s=1, bytes=5))

    assert (row.percent, row.mib_per_s, row.eta_s) == (None, None, None)


def test_seconds_of_a_build_have_no_speed_in_bytes():
    row = row_of(
        event(BEGIN, phase="build"),
        event(PROGRESS, at_s=1, phase="build", bytes=1, total=60),
        event(PROGRESS, at_s=30, phase="build", bytes=30, total=60),
    )

    assert row.percent == 50
    assert row.mib_per_s is None


def test_a_link_that_stands_still_has_no_end():
    row = row_of(event(BEGIN), event(PROGRESS, at_s=1, bytes=0, total=10), event(PROGRESS, at_s=9, bytes=0, total=10))

    assert row.eta_s is None


def test_a_new_phase_begins_at_nothing():
    row = row_of(event(BEGIN), event(PROGRESS, at_s=1, bytes=5, total=10, hint="n"), event(BEGIN, phase="verify"))

    assert (row.phase, row.percent, row.note) == ("verify", None, "")


def rows_of(*, total, at_work, failed, done):
    rows, names = FleetRows(total), (f"d-{number:03}" for number in range(total))
    for count, code, result in (
        (at_work, None, None),
        (failed, "trial.crash", "rolled-back"),
        (done, None, "committed"),
    ):
        for _ in range(count):
            name = next(names)
            rows.take(event(BEGIN, target=name))
            if result is not None:
                rows.take(last(name, result, code))
    return rows


@pytest.mark.parametrize(
    ("at_work", "failed", "done", "shown_at_work", "shown_failed", "others"),
    [
        (16, 0, 0, 16, 0, "184 waiting"),
        (16, 3, 40, 16, 3, "40 done, 141 waiting"),
        (16, 30, 40, 14, 7, "2 more at work, 23 more failed, 40 done, 114 waiting"),
        (100, 0, 0, 21, 0, "79 more at work, 100 waiting"),
        (2, 60, 138, 2, 19, "41 more failed, 138 done"),
        (0, 0, 200, 0, 0, "200 done"),
    ],
)
def test_two_hundred_targets_on_twenty_one_lines(at_work, failed, done, shown_at_work, shown_failed, others):
    shown, counted = rows_of(total=200, at_work=at_work, failed=failed, done=done).fitting(21)

    assert sum(row.result is None for row in shown) == shown_at_work
    assert sum(row.has_failed for row in shown) == shown_failed
    assert len(shown) <= 21
    assert counted == others


def test_the_last_failures_are_shown():
    shown, _ = rows_of(total=9, at_work=0, failed=9, done=0).fitting(3)

    assert [row.target for row in shown] == ["d-006", "d-007", "d-008"]


def test_one_line_has_room_for_one():
    shown, others = rows_of(total=9, at_work=2, failed=2, done=0).fitting(1)

    assert len(shown) == 1
    assert others == "1 more at work, 2 more failed, 5 waiting"


def test_text_of_a_device_cannot_touch_the_terminal():
    assert printable("bad\x1b[2J\x07 line\n next\u202e") == "bad?[2J? line next?"
    assert printable(None) == ""
    assert len(printable("x" * 10_000)) == 400


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_960, "1.0 MB"), (44_900_000, "44.9 MB"),
     (2_500_000_000, "2.5 GB")],
)  # fmt: skip
def test_sizes(count, text):
    assert size_text(count) == text


def test_the_end_of_a_phase_keeps_its_count():
    row = row_of(event(BEGIN), event(PROGRESS, at_s=1, bytes=5, total=10), event(END, at_s=2, bytes=10, total=10))

    assert row.percent == 100
