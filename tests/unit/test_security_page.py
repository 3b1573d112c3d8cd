"""SECURITY.md names a test for each thing that somebody cannot do, and each of these tests exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
ROWS = [row for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith("| Can |")]


@pytest.mark.parametrize(("path", "test"), NAMED)
def test_a_test_that_the_page_names_exists(path, test):
    assert f"\ndef {test}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[:60])
def test_each_row_names_what_shows_it(row):
    can, cannot, shown = (cell.strip() for cell in row.strip("|").split("|"))

    assert can or cannot
    assert re.search(r"`tests/[\w/]+\.py::\w+`", shown)


def test_the_page_has_somebody_in_it():
    assert len(ROWS) >= 15
