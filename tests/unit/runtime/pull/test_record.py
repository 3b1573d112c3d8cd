"""What a pull remembers: whole or nothing, of software before and after, and of a disk that somebody has edited."""

import json
from dataclasses import replace

import pytest

from edge.runtime.pull.record import PullRecord, Settled, decode_pull_record, read_pull_record, settled_by, write_record

REFERENCE = "registry.example/farms/gates:stable-all"
SETTLED = Settled(digest="sha256:aa", release="0123456789ab", result="committed")
AWAY = PullRecord(
    reference=REFERENCE, result="failed", code="registry.failed", at="2026-11-24T00:00:00Z", settled=SETTLED
)


def before(**values):
    """A record as software wrote it that knew the last result alone."""
    known = {"reference": REFERENCE, "digest": "sha256:aa", "release": "0123456789ab", "at": "2026-11-24T00:00:00Z"}
    return json.dumps({"format": 1, **known, "code": None, "problem": None, "not_before_s": 0.0, **values}).encode()


def test_what_is_written_is_read(tmp_path):
    write_record(tmp_path / "pull.json", AWAY)

    assert read_pull_record(tmp_path / "pull.json") == AWAY
    assert read_pull_record(tmp_path / "nothing") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"format": 2}', b'{"format": 1}'])
def test_a_record_that_is_none_is_as_none(content):
    assert decode_pull_record(content) is None


def test_a_release_is_known_by_its_artifact_and_in_another_wrapping_too_but_what_is_kept_may_be_signed_again():
    assert AWAY.is_judged(digest="sha256:aa")
    assert not AWAY.is_judged(digest="sha256:bb")
    assert AWAY.is_judged(release="0123456789ab")
    assert not AWAY.is_judged(release="0" * 12)
    kept = replace(AWAY, settled=replace(SETTLED, result="kept"))
    assert (kept.is_judged(digest="sha256:aa"), kept.is_judged(release="0123456789ab")) == (True, False)


@pytest.mark.parametrize("settled", [1, "committed", [], {"release": "x"}, {"digest": None, "who": "me"}])
def test_a_record_that_somebody_has_edited_is_none(settled):
    assert decode_pull_record(before(result="failed", settled=settled)) is None


def test_a_record_of_later_software_is_read_as_far_as_it_is_known():
    assert decode_pull_record(before(result="committed", colour="red")).result == "committed"


def test_nothing_is_settled_by_what_came_to_nothing_elsewhere_and_all_stays_settled_here():
    failed = PullRecord(reference=REFERENCE, result="failed", at="2026-11-24T00:00:00Z")
    elsewhere = PullRecord(reference="other.example/gates:stable-all", result="failed", at="2026-11-24T00:00:00Z")

    assert settled_by(failed, before=AWAY) == SETTLED
    assert settled_by(elsewhere, before=AWAY) is None
    assert settled_by(failed, before=None) is None
