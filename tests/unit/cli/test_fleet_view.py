"""What a row knows, which rows a small screen shows, and what a person and a program see of a fleet."""

import io
import json
from datetime import datetime, timedelta, timezone

import pytest
from rich.console import Console

from edge.cli.fleet_view import FleetRow, FleetRows, JsonLines, LiveRows, PlainLines, printable, screen, size_text
from edge.delivery.outcome import BEGIN, END, LAST_PHASE, NOTE, PROGRESS, UPLOAD, Event

MIB = 1024 * 1024
START = datetime(2026, 11, 20, 10, 15, 2, 113_000, tzinfo=timezone.utc)


def event(name, *, at_s=0.0, target="d-00", phase=UPLOAD, **values):
    return Event(ts=START + timedelta(seconds=at_s), target=target, phase=phase, event=name, **values)


A_PUSH = (
    event(BEGIN),
    event(PROGRESS, at_s=1, bytes=1_000_000, total=44_900_000),
    event(NOTE, at_s=2, hint="the link is slow"),
    event(END, at_s=6.1, bytes=44_900_000, total=44_900_000),
    event("committed", at_s=230.2, phase=LAST_PHASE, bytes=44_900_000),
)
A_FAILURE = (
    event(BEGIN, target="gate-1", phase="connect"),
    event("unreachable", target="gate-1", phase=LAST_PHASE, code="transfer.unreachable", hint="no\x1b[2J route"),
)


def test_json_is_one_object_per_event_with_all_its_keys(capsys):
    with JsonLines() as view:
        for one in (*A_PUSH, *A_FAILURE):
            view.on_event(one)
        view.say("wave of 2")

    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert len(lines) == 7
    assert lines[1] == {
        "ts": "2026-11-20T10:15:03.113Z",
        "target": "d-00",
        "phase": "upload",
        "event": "progress",
        "bytes": 1_000_000,
        "total": 44_900_000,
        "code": None,
        "hint": None,
    }
    assert [(line["target"], line["event"]) for line in lines if line["phase"] == "result"] == [
        ("d-00", "committed"),
        ("gate-1", "unreachable"),
    ]
    assert err == "wave of 2\n"


def test_lines_for_a_log_have_one_line_per_phase_and_results_on_stdout(capsys):
    with PlainLines(("d-00", "gate-1")) as view:
        for one in (*A_PUSH, *A_FAILURE):
            view.on_event(one)

    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "d-00    upload    the link is slow",
        "d-00    upload    44.9 MB  6.1 s",
    ]
    assert out.splitlines() == [
        "d-00    committed in 230.2 s, 44.9 MB sent",
        "gate-1  unreachable  transfer.unreachable: no?[2J route",
    ]


def drawn(rows, *, width=80, height=24):
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(screen(rows, height=height))
    return console.file.getvalue().splitlines()


def test_a_row_tells_phase_share_speed_and_time_left():
    rows = FleetRows(3)
    for one in (
        event(BEGIN),
        event(PROGRESS, at_s=0, bytes=0, total=40 * MIB),
        event(PROGRESS, at_s=2, bytes=10 * MIB, total=40 * MIB),
        *A_FAILURE,
    ):
        rows.take(one)

    first, second, last = drawn(rows)
    assert first.split() == ["d-00", "upload", "25", "%", "5.0", "MiB/s", "6", "s", "left"]
    assert second.split(maxsplit=2)[:2] == ["gate-1", "unreachable"]
    assert last == "1 waiting"


def test_two_hundred_targets_stay_within_a_small_terminal_whatever_they_say():
    rows = FleetRows(200)
    for number in range(90):
        rows.take(event(BEGIN, target=f"d-{number:03}", phase="connect"))
    for number in range(40):
        long = "[bold]" + "very long reason " * 20
        rows.take(event("failed", target=f"d-{number:03}", phase=LAST_PHASE, code="build.oom", hint=long))

    lines = drawn(rows)

    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "36 more at work, 33 more failed, 110 waiting"
    assert "[bold]" in lines[-2]


def test_a_terminal_shows_the_results_when_the_rows_are_gone(capsys):
    console = Console(file=io.StringIO(), width=100, height=24, force_terminal=True)
    with LiveRows(("d-00", "gate-1"), console=console) as view:
        view.say("wave of 2: [d-00], gate-1")
        for one in (*A_PUSH, *A_FAILURE):
            view.on_event(one)

    assert capsys.readouterr().out.splitlines() == [
        "d-00    committed in 230.2 s, 44.9 MB sent",
        "gate-1  unreachable  transfer.unreachable: no?[2J route",
    ]
    assert "wave of 2: [d-00], gate-1" in console.file.getvalue()
    assert "\x1b[2J" not in console.file.getvalue()


def last(target, result="committed", code=None):
    return event(result, target=target, phase=LAST_PHASE, code=code, hint="why" if code else None)


def row_of(*events):
    row = FleetRow(target="d-00", began_at=START)
    for one in events:
        row.take(one)
    return row


@pytest.mark.parametrize(
    ("phase", "counts", "total", "expected"),
    [
        (UPLOAD, {1: 60 * MIB, 3: 70 * MIB}, 100 * MIB, (70, 5 * MIB, 6)),
        (UPLOAD, {1: 5}, None, (None, None, None)),
        ("build", {1: 1, 30: 30}, 60, (50, None, None)),
        (UPLOAD, {1: 0, 9: 0}, 10, (0, 0, None)),
    ],
    ids=["resumed-elsewhere", "nothing-known", "seconds-of-a-build", "link-stands-still"],
)
def test_share_speed_and_time_left_are_of_what_has_come_since_the_row_saw_it(phase, counts, total, expected):
    progress = [event(PROGRESS, at_s=at_s, phase=phase, bytes=count, total=total) for at_s, count in counts.items()]

    row = row_of(event(BEGIN, phase=phase), *progress)

    assert (row.percent, row.bytes_per_s, row.eta_s) == pytest.approx(expected)


def test_the_end_of_a_phase_keeps_its_count_and_a_new_one_begins_at_nothing():
    row = row_of(event(BEGIN), event(PROGRESS, bytes=5, total=10, hint="n"), event(END, at_s=2, bytes=10, total=10))
    assert row.percent == 100

    row.take(event(BEGIN, phase="verify"))
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
    ("lines", "at_work", "failed", "done", "shown_at_work", "shown_failed", "others"),
    [
        (21, 16, 0, 0, 16, 0, "184 waiting"),
        (21, 16, 3, 40, 16, 3, "40 done, 141 waiting"),
        (21, 16, 30, 40, 14, 7, "2 more at work, 23 more failed, 40 done, 114 waiting"),
        (21, 100, 0, 0, 21, 0, "79 more at work, 100 waiting"),
        (21, 2, 60, 138, 2, 19, "41 more failed, 138 done"),
        (21, 0, 0, 200, 0, 0, "200 done"),
        (1, 2, 2, 0, 1, 0, "1 more at work, 2 more failed, 196 waiting"),
    ],
)
def test_two_hundred_targets_on_few_lines(lines, at_work, failed, done, shown_at_work, shown_failed, others):
    shown, counted = rows_of(total=200, at_work=at_work, failed=failed, done=done).fitting(lines)

    assert sum(row.result is None for row in shown) == shown_at_work
    assert sum(row.has_failed for row in shown) == shown_failed
    assert len(shown) <= lines
    assert counted == others


def test_the_last_failures_are_shown():
    shown, _ = rows_of(total=9, at_work=0, failed=9, done=0).fitting(3)

    assert [row.target for row in shown] == ["d-006", "d-007", "d-008"]


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
