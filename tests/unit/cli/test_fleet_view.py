"""What a person and a program see of a fleet."""

import io
import json
from datetime import datetime, timedelta, timezone

from rich.console import Console

from edge.cli.fleet_view import FleetRows, JsonLines, LiveRows, PlainLines, screen
from edge.delivery.outcome import BEGIN, END, LAST_PHASE, NOTE, PROGRESS, UPLOAD, Event

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
        event(PROGRESS, at_s=0, bytes=0, total=40 * 1024 * 1024),
        event(PROGRESS, at_s=2, bytes=10 * 1024 * 1024, total=40 * 1024 * 1024),
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
