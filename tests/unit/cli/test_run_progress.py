"""The live table of a run, and its account."""

import errno
import io
from pathlib import Path

import pytest
from rich.console import Console

from edge.cli.commands.run import live_table, report_lines, run_table, stats_writer
from edge.errors import ConfigError
from tests.support.service_parts import CONNECTING, DOWN, UP, account

STAGES_MS = {"total": {"p50": 25.0, "p95": 31.0}}


def at(*streams):
    return account(*streams, stages_ms=STAGES_MS)


def test_a_row_for_each_camera_with_its_state():
    states = [UP, DOWN, CONNECTING]
    console = Console(file=io.StringIO(), width=100)

    console.print(run_table(at(*[(state, 7, 5) for state in states])))

    _, head, *rows = console.file.getvalue().splitlines()
    assert head.split() == ["camera", "state", "fps", "frames", "detections"]
    assert [row.split()[1] for row in rows] == ["up", "down", "connecting"]
    assert [row.split()[3] for row in rows] == ["5", "5", "5"]


def test_where_nothing_was_inferred_there_is_no_latency():
    _, total, *_ = report_lines(at((DOWN, 0, 0)))

    assert (total.startswith("0 frames in "), "latency" in total, "None" in total) == (True, False, False)
    assert "latency p50 25.0 ms" in list(report_lines(at((UP, 7, 5))))[1]


def test_nothing_is_drawn_where_stderr_is_no_terminal(capsys):
    with live_table(is_wanted=True) as (show, remove):
        show(at((UP, 1, 1)))
        remove()

    assert capsys.readouterr() == ("", "")


def test_an_account_that_finds_no_room_is_told_with_its_place(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"^--stats /dev/full: cannot be written: No space.*; make room"):
        stats_writer(Path("/dev/full"))("an account")

    monkeypatch.setattr("os.fsync", _disk_is_full)
    with pytest.raises(ConfigError, match=r"stats: cannot be written: No space"):
        stats_writer(tmp_path / "stats")("an account")
    assert list(tmp_path.iterdir()) == []


def _disk_is_full(_):
    raise OSError(errno.ENOSPC, "No space left on device")
