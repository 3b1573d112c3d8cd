"""What a pull remembers: of software before, and of a disk that somebody has edited."""

import json

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
    assert AWAY.is_judged(REFERENCE, digest="sha256:aa")


@pytest.mark.parametrize(("result", "is_judged", "is_on_trial"), [
    ("committed", True, False), ("unchanged", True, False), ("rolled-back", True, False),
    ("on-trial", False, True), ("failed", False, False),
])  # fmt: skip
def test_a_record_of_software_before_says_what_it_said(result, is_judged, is_on_trial):
    record = decode_pull_record(before(result=result))

    assert record.is_judged(REFERENCE, release="0123456789ab") is is_judged
    assert record.is_on_trial(REFERENCE, release="0123456789ab") is is_on_trial


@pytest.mark.parametrize("settled", [1, "committed", [], {}, {"release": "x"}, {"digest": None, "who": "me"}])
def test_a_record_that_somebody_has_edited_is_none(settled):
    assert decode_pull_record(before(result="failed", settled=settled)) is None


def test_nothing_is_settled_by_what_came_to_nothing_elsewhere():
    elsewhere = PullRecord(reference="other.example/gates:stable-all", result="failed", at="2026-11-24T00:00:00Z")

    assert settled_by(elsewhere, before=AWAY) is None
