"""What a row knows, which rows a small screen shows, and what a person and a program see of a fleet."""

import io
import json
import re
from datetime import datetime, timedelta, timezone

import pytest
from rich.console import Console

from edge.cli.commands.provision import _show
from edge.cli.fleet_view import FleetRow, FleetRows, JsonLines, LiveRows, PlainLines, printable, screen, size_text
from edge.delivery.outcome import BEGIN, END, LAST_PHASE, NOTE, PROGRESS, UPLOAD, Event
from edge.delivery.verdict import failed_by
from edge.deploy.fleet.rollout import FleetResult
from edge.errors import DeployError
from tests.support.wait import wait_until

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
    event(
        "unreachable", target="gate-1", phase=LAST_PHASE, code="transfer.unreachable", hint="gate-1: no\x1b[2J route"
    ),
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


def drawn(rows):
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    console.print(screen(rows))
    return console.file.getvalue().splitlines()


def test_a_row_tells_phase_share_and_note_below_a_count_of_all():
    rows = FleetRows(3)
    for one in (event(BEGIN), event(PROGRESS, at_s=2, bytes=10, total=40, hint="slow"), *A_FAILURE):
        rows.take(one)

    counted, first, second = drawn(rows)
    assert counted == "1 at work, 1 failed, 1 waiting"
    assert first.split() == ["d-00", "upload", "25", "%", "slow"]
    assert second.split(maxsplit=2)[:2] == ["gate-1", "unreachable"]


def test_two_hundred_targets_stay_within_a_small_terminal_whatever_they_say():
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True, color_system=None)
    with LiveRows(tuple(f"d-{number:03}" for number in range(200)), console=console, has_results=False) as view:
        for number in range(90):
            view.on_event(event(BEGIN, target=f"d-{number:03}", phase="connect"))
        for number in range(80):
            long = "[bold]" + "very long reason " * 20
            view.on_event(
                event("failed", target=f"d-{number:03}", phase=LAST_PHASE, code="build.oom", hint=f"{number}{long}")
            )
        wait_until(lambda: "10 at work, 80 failed, 110 waiting" in console.file.getvalue(), what="a frame of all")

    frames = re.split(r"\x1b\[[0-9;?]*[A-Za-z]", console.file.getvalue())
    assert max(frame.count("\n") for frame in frames) < 24
    assert max(len(line) for frame in frames for line in frame.splitlines()) <= 80
    assert "79[bold]" in "".join(frames)  # the last failure stands first


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


def row_of(*events):
    row = FleetRow(target="d-00", began_at=START)
    for one in events:
        row.take(one)
    return row


def test_where_no_total_is_known_there_is_no_share():
    assert row_of(event(BEGIN), event(PROGRESS, bytes=5)).percent is None


def test_the_end_of_a_phase_keeps_its_count_and_a_new_one_begins_at_nothing():
    row = row_of(event(BEGIN), event(PROGRESS, bytes=5, total=10, hint="n"), event(END, at_s=2, bytes=10, total=10))
    assert row.percent == 100

    row.take(event(BEGIN, phase="verify"))
    assert (row.phase, row.percent, row.note) == ("verify", None, "")


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


@pytest.mark.parametrize(("count", "lines"), [(2, 0), (20, 20)])
def test_what_hinders_a_provision_is_told_a_second_time_only_where_its_line_was_cut(capsys, count, lines):
    conflicts = [f"/etc/of-somebody-else/{number}" for number in range(count)]
    error = DeployError("verify.provision", "; ".join(conflicts), evidence={"conflicts": conflicts})

    _show(FleetResult(outcomes=(failed_by(error, target="gate-1"),)))

    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == conflicts[:lines]
