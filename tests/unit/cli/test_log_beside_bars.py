"""What is logged while a bar is shown stands above the bar, on a line of its own."""

import sys
from pathlib import Path

from edge.cli.output import progress_bar
from tools.pictures.terminal import run_on_terminal

ROOT = Path(__file__).parents[3]
COMMAND = """
import logging
import click
from edge.cli.lazy import verbosity_option
from edge.cli.output import progress_bar

@click.command()
@verbosity_option
def command():
    logging.getLogger("edge").warning("before")
    with progress_bar("images", total=2) as step:
        step()
        logging.getLogger("edge").warning("slow")
        step()
    logging.getLogger("edge").warning("after")

command()
"""


def test_a_warning_stands_above_the_bar_and_not_in_it():
    session = run_on_terminal([sys.executable, "-c", COMMAND], folder=ROOT)

    assert session.code == 0, session.told
    assert session.told.splitlines() == ["WARNING edge: before", "WARNING edge: slow", "WARNING edge: after"]
    assert "images" in session.screen


def test_where_there_is_no_terminal_a_line_each_half_minute_says_how_far_it_is(capsys, monkeypatch):
    now = 0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress_bar("search", total=9) as step:
        for now in (29, 31, 60, 61):  # noqa: B007 - the clock reads it
            step()

    assert capsys.readouterr() == ("", "search: 2 of about 9 steps\nsearch: 4 of about 9 steps\n")
