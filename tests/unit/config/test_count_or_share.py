"""Counts and shares, by hand."""

import pytest

from edge.config.targets import CountOrShare


@pytest.mark.parametrize(
    ("written", "total", "expected"),
    [
        ("10%", 3, 1),
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("100%", 7, 7),
        ("0%", 7, 0),
        ("33.33%", 3, 1),
        ("33.34%", 3, 2),
        ("10%", 0, 0),
        (4, 10, 4),
        (4, 3, 3),
    ],
)
def test_a_share_is_rounded_up_and_a_count_is_at_most_all(written, total, expected):
    assert CountOrShare.parse(written).of(total) == expected


@pytest.mark.parametrize(
    ("written", "count", "total", "expected"),
    [
        ("5%", 1, 20, False),
        ("5%", 1, 19, True),
        ("5%", 3, 60, False),
        ("5%", 0, 0, False),
        ("0%", 1, 100, True),
        ("7%", 7, 100, False),  # 0.07 * 100 is more than 7 in floating point
        (2, 2, 100, False),
        (2, 3, 3, True),
    ],
)
def test_a_limit_is_exceeded_by_more_than_it_exactly(written, count, total, expected):
    assert CountOrShare.parse(written).is_exceeded_by(count, total) is expected


@pytest.mark.parametrize("written", ["", "%", "101%", "-1%", "1e1%", "10 %", "10", "nan%", "5%\n", -1])
def test_what_is_neither_is_refused(written):
    with pytest.raises(ValueError, match=r"expected a count|is no part"):
        CountOrShare.parse(written)
