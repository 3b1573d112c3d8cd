"""Statements of what rings run: what is one, and when a device follows it."""

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from edge.bundle.statement import RingStatement, asks_for_statements, decode_statement, encode_statement
from tests.support.raised import error_of

AT = datetime(2026, 11, 24, tzinfo=timezone.utc)
ONE = RingStatement(
    channel="stable",
    ring="canary",
    release="3f9a1c07b2de",
    sequence=7,
    serial=1_795_435_200,
    created_at="2026-11-23T12:00:00Z",
    valid_until="2026-12-23T12:00:00Z",
)


def codes(statement, *, seen=0, at=AT, is_clock_sure=True):
    return [one.code for one in statement.unfit(seen_serial=seen, at=at, is_clock_sure=is_clock_sure)]


def test_what_is_written_is_read():
    assert decode_statement(encode_statement(ONE)) == ONE
    empty = replace(ONE, release=None, sequence=None)
    assert decode_statement(encode_statement(empty)) == empty
    assert ONE.tag == "stable-canary"


@pytest.mark.parametrize(
    "changes",
    [
        {"channel": "Stable"},
        {"ring": "canary.1"},
        {"release": "3f9a"},
        {"release": None},
        {"sequence": None},
        {"sequence": -1},
        {"serial": 0},
        {"serial": 1_795_521_601},  # more than a day after the second in which it was made
        {"serial": True},
        {"valid_until": "2026-11-23T12:00:00Z"},
        {"created_at": "yesterday"},
    ],
)
def test_what_cannot_be_is_no_statement(changes):
    assert error_of(replace, ONE, **changes).code.startswith("verify.")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"format": "edge.ring/2"}', b'{"format": "edge.ring/1"}', b"{" * 5000]
)
def test_what_is_none_is_refused(content):
    assert error_of(decode_statement, content).code.startswith("verify.")


def test_a_statement_of_another_format_is_none():
    other = encode_statement(ONE).replace(b"edge.ring/1", b"edge.ring/2")

    assert error_of(decode_statement, other).code == "verify.ring.field"


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, []),
        ({"seen": ONE.serial}, []),
        ({"seen": ONE.serial + 1}, ["verify.ring.serial"]),
        ({"at": datetime(2026, 12, 23, 11, 59, 59, tzinfo=timezone.utc)}, []),
        ({"at": datetime(2026, 12, 23, 12, tzinfo=timezone.utc)}, ["verify.ring.expired"]),
        ({"at": datetime(2026, 11, 22, 11, tzinfo=timezone.utc)}, ["verify.ahead.time"]),
        ({"at": datetime(2026, 11, 22, 11, tzinfo=timezone.utc), "is_clock_sure": False}, []),
    ],
)
def test_a_device_follows_what_is_not_older_not_over_and_not_from_far_ahead(more, found):
    assert codes(ONE, **more) == found


@pytest.mark.parametrize(
    ("changes", "code"),
    [({}, None), ({"channel": "beta"}, 1), ({"release": "0" * 12}, 1), ({"sequence": 6}, 1)],
)
def test_it_names_one_release_of_one_sequence(changes, code):
    asked = {"channel": "stable", "release": "3f9a1c07b2de", "sequence": 7, **changes}
    assert (ONE.misses(**asked) is not None) == (code is not None)


@pytest.mark.parametrize(
    ("line", "is_so"),
    [
        ('ana namespaces="edge-release" ssh-ed25519 AAAA', False),
        ('ana namespaces="edge-release,edge-ring" ssh-ed25519 AAAA', True),
        ('ana NAMESPACES="edge-r*" ssh-ed25519 AAAA', True),
        ('# ana namespaces="edge-ring" ssh-ed25519 AAAA', False),
        ("ana ssh-ed25519 AAAA", False),
    ],
)
def test_a_device_asks_for_statements_once_it_knows_who_may_make_them(line, is_so):
    assert asks_for_statements(f"ops ssh-ed25519 BBBB\n{line}\n") == is_so
