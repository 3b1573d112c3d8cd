"""Tables on terminals of any width: what goes first, and what is never lost."""

import math
import os
import pty
import subprocess
import sys

import pytest

from edge.cli.output import aligned, amount, folded
from tests.support.demo_model import MODEL, TABLE

ROWS = [
    ("ms", "share", "operator", "layer"),
    ("1.25", "7%", "Conv", "/model/neck/cv1/conv/Conv"),
    ("10", "93%", "Add", "/Add"),
]
SPARE = ("operator", "share")


def lines(width, **more):
    return list(aligned(ROWS, width=width, spare=SPARE, is_named=True, **more))


def test_without_a_terminal_everything_is_there():
    assert lines(None) == [
        "  ms  share  operator  layer",
        "1.25     7%  Conv      /model/neck/cv1/conv/Conv",
        "  10    93%  Add       /Add",
    ]


def test_where_all_fits_nothing_is_left_out():
    assert lines(48) == lines(None)


def test_a_name_is_shortened_in_its_middle_before_a_column_goes():
    assert lines(43)[1] == "1.25     7%  Conv      /model/…v1/conv/Conv"


def test_columns_go_in_the_order_given_and_are_named():
    assert lines(32)[0] == "  ms  share  layer"
    assert lines(32)[-1] == "not shown for want of width: operator"
    assert lines(24)[0] == "  ms  layer"
    assert lines(24)[-1] == "not shown for want of width: operator, share"


@pytest.mark.parametrize("width", range(22, 60))
def test_no_line_of_the_table_is_longer_than_the_terminal(width):
    *table, _ = [*lines(width), ""] if lines(width)[-1].startswith("  10") else lines(width)

    assert max(map(len, table)) <= width
    assert [line.split()[0] for line in table] == ["ms", "1.25", "10"]


@pytest.mark.parametrize(
    ("columns", "asked"),
    [
        (60, ("roofline", MODEL)),
        (80, ("roofline", MODEL)),
        (80, ("roofline", "--list")),
    ],
)
def test_headings_and_rows_fit_the_terminal(asked, columns):
    heads = ("in  ", "least ms", "INT8 TOPS", "  in  ")
    shown = on_terminal("edge-deploy", *map(str, asked), columns=columns)

    first = next(i for i, line in enumerate(shown) if line.startswith(heads))
    table = shown[first : next(i for i in range(first, len(shown)) if not shown[i] or shown[i].startswith("not shown"))]
    assert len(table) > 4
    assert max(map(len, table)) <= columns, max(table, key=len)


@pytest.mark.parametrize(
    ("text", "before", "width", "lines"),
    [
        ("one two three four", "", None, ["one two three four"]),
        ("one two three four five", "", 23, ["one two three four five"]),
        ("one two three four five", "", 18, ["one two three four", "  five"]),
        ("  one two three four five", "", 20, ["  one two three four", "    five"]),
        ("one two three four five", "name  ", 24, ["name  one two three four", "      five"]),
        ("/a/path-that-is/longer-than-the/line", "", 18, ["/a/path-that-is/longer-than-the/line"]),
        ("one two three four five", "a long name  ", 20, ["a long name  one two three four five"]),
    ],
)
def test_sentences_are_broken_between_words_under_themselves(text, before, width, lines):
    assert folded(text, before=before, width=width).splitlines() == lines


def test_what_is_said_of_a_table_fits_the_terminal():
    shown = on_terminal("edge-deploy", "table", "show", str(TABLE), columns=80)

    facts = shown[: shown.index("")]
    assert max(map(len, facts)) <= 80
    assert any(line.startswith(" " * 10) for line in facts)


def on_terminal(program, *arguments, columns):
    ours, its = pty.openpty()
    environ = {**os.environ, "COLUMNS": str(columns)}
    module = {"edge-deploy": "edge.cli.edge_deploy"}[program]
    with subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=its, env=environ) as running:
        os.close(its)
        written = b""
        while part := _read(ours):
            written += part
    os.close(ours)
    assert running.returncode == 0
    return written.decode().replace("\r\n", "\n").splitlines()


def _read(descriptor):
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # how a terminal says that the other side has gone
        return b""


def test_amounts_are_in_three_digits():
    assert [amount(value) for value in (0, 7, 999.4, 999.6, 1000, 12345, 1e6, 4.474e9, 33.4e12)] == [
        "0", "7", "999", "1.00 k", "1.00 k", "12.3 k", "1.00 M", "4.47 G", "33.4 T",
    ]  # fmt: skip
    assert not any(". " in amount(10**power) for power in range(16))
    assert all(math.isclose(float(amount(v).split()[0]), v / 1e3, rel_tol=0.01) for v in (1234, 56789, 456789))
