"""SECURITY.md names a test for each thing that somebody cannot do, and each of these tests exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
ROWS = [row for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith("| Can |")]


def test_the_tests_that_the_page_names_exist():
    missing = [
        f"{path}::{test}" for path, test in NAMED if f"\ndef {test}(" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_each_row_names_what_shows_it():
    for row in ROWS:
        can, cannot, shown = (cell.strip() for cell in row.strip("|").split("|"))
        assert can or cannot, row
        assert re.search(r"`tests/[\w/]+\.py::\w+`", shown), row


def test_the_page_has_somebody_in_it():
    assert len(ROWS) >= 15
